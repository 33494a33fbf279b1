/* The inner loops of a query, over postings and vectors.
 *
 *   find  looks up a term.
 *   best  scores the passages of a segment by BM25 and selects the best.
 *   near  finds candidates among vectors of eight bits.
 *   dots  scores vectors in double precision.
 *
 * The modules that call find, best and dots have the same in Python and NumPy, for installations
 * without a compiler. Both forms do the same operations in the same order, so that scores are equal
 * to the last bit. That is why products and sums must not be contracted (see setup.py). `near` has
 * no other form: without it, all vectors are scored.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Passages whose scores are summed together: 128 kB, which stay in the cache. */
#define WINDOW 16384
/* Postings between the one that is scored and the one whose passage length is prefetched. */
#define POSTINGS_AHEAD 32
/* Vectors between the one that is scored and the one that is prefetched. */
#define ROWS_AHEAD 4

typedef struct {
    double score;
    uint32_t position;
} Hit;

typedef struct {
    double factor;    /* multiplies the weights of the term */
    Py_ssize_t next;  /* the first posting behind the window */
    Py_ssize_t stop;  /* behind the last posting */
    Py_ssize_t begin; /* the first posting in the window */
    /* Of the array of terms, not of this term: entry r has the number of the term with rank r, the
     * rarest first. */
    Py_ssize_t by_rank;
} Term;

/* The numbers of a BM25 variant; see indexes.bm25.formulas. */
typedef struct {
    int is_lifted; /* whether delta is added to the normalized frequency, as in bm25l */
    double slope, constant, k1, scale, delta;
} Formula;

/* The postings and passages of a segment. */
typedef struct {
    const uint32_t *positions;
    const void *frequencies;
    Py_ssize_t width; /* bytes of a frequency */
    const uint32_t *lengths;
    uint64_t passages;
    const uint8_t *live;    /* a byte for each passage; NULL if all are live */
    const uint8_t *allowed; /* a bit for each passage; NULL if all are allowed */
} Segment;

/* (WINDOW,) zeros for the next search, or NULL. Hold the GIL to change it. */
static double *spare_window = NULL;

/* Return whether a hit ranks below another; of equal scores the later passage ranks below. */
static int
is_worse(Hit hit, Hit other)
{
    if (hit.score != other.score)
        return hit.score < other.score;
    return hit.position > other.position;
}

/* Restore the heap below `place`; the worst hit is on top. */
static void
sift_down(Hit *heap, Py_ssize_t size, Py_ssize_t place)
{
    Hit moved = heap[place];
    for (;;) {
        Py_ssize_t child = 2 * place + 1;
        if (child >= size)
            break;
        if (child + 1 < size && is_worse(heap[child + 1], heap[child]))
            child++;
        if (!is_worse(heap[child], moved))
            break;
        heap[place] = heap[child];
        place = child;
    }
    heap[place] = moved;
}

static void
make_heap(Hit *heap, Py_ssize_t size)
{
    for (Py_ssize_t place = size / 2; place-- > 0;)
        sift_down(heap, size, place);
}

/* Return the frequency of a posting. */
static inline uint32_t
frequency_at(const Segment *segment, Py_ssize_t i)
{
    switch (segment->width) {
    case 1:
        return ((const uint8_t *)segment->frequencies)[i];
    case 2:
        return ((const uint16_t *)segment->frequencies)[i];
    default:
        return ((const uint32_t *)segment->frequencies)[i];
    }
}

/* Return the weight of a term in a passage of `length` terms. */
static inline double
weight_of(const Formula *formula, uint32_t frequency, uint32_t length)
{
    double norm = length * formula->slope;
    norm += formula->constant;
    if (formula->is_lifted) {
        double lifted = frequency / norm + formula->delta;
        return formula->scale * lifted / (formula->k1 + lifted);
    }
    norm *= formula->k1;
    norm += frequency;
    double weight = frequency / norm;
    weight *= formula->scale;
    return weight + formula->delta;
}

/* Return whether the bit at a place is set. */
static inline int
is_set(const uint8_t *bits, uint64_t place)
{
    return bits[place >> 3] >> (place & 7) & 1;
}

/* Add the scores of all terms to the passages of a window. The score of a passage that must not be
 * found is -INFINITY. Return whether the postings are possible: positions ascend and exist, and no
 * frequency exceeds the length of its passage. */
static int
sum_window(double *scores, Term *terms, Py_ssize_t count, const Segment *segment,
           const Formula *formula, uint32_t first)
{
    const uint32_t *positions = segment->positions, *lengths = segment->lengths;
    for (Py_ssize_t t = 0; t < count; t++) {
        Py_ssize_t next = terms[t].next, stop = terms[t].stop;
        int64_t last = -1;
        terms[t].begin = next;
        for (; next < stop; next++) {
            uint32_t position = positions[next];
            int64_t place = (int64_t)position - first;
            if (place >= WINDOW)
                break;
            if (place <= last || position >= segment->passages)
                return 0;
#if defined(__GNUC__)
            /* The processor cannot predict which length is next. */
            if (next + POSTINGS_AHEAD < stop
                && positions[next + POSTINGS_AHEAD] < segment->passages)
                __builtin_prefetch(lengths + positions[next + POSTINGS_AHEAD]);
#endif
            uint32_t frequency = frequency_at(segment, next), length = lengths[position];
            if (frequency == 0 || length < frequency)
                return 0;
            if ((segment->live == NULL || segment->live[position])
                && (segment->allowed == NULL || is_set(segment->allowed, position)))
                scores[place] += terms[t].factor * weight_of(formula, frequency, length);
            else
                scores[place] = -INFINITY;
            last = place;
        }
        terms[t].next = next;
    }
    return 1;
}

/* Offer the passages of a window to the heap of the `k` best, and set their scores to zero.
 * Passages with rare terms come first, since they score most. Return the size of the heap. */
static Py_ssize_t
offer_window(double *scores, const Term *terms, Py_ssize_t count, const uint32_t *positions,
             uint32_t first, Hit *heap, Py_ssize_t size, Py_ssize_t k)
{
    for (Py_ssize_t rank = 0; rank < count; rank++) {
        Py_ssize_t t = terms[rank].by_rank;
        for (Py_ssize_t next = terms[t].begin; next < terms[t].next; next++) {
            Hit hit = {scores[positions[next] - first], positions[next]};
            if (size == k) {
                if (!is_worse(heap[0], hit))
                    continue;
                heap[0] = hit;
                sift_down(heap, size, 0);
            }
            else if (hit.score == -INFINITY) {
                continue;
            }
            else {
                heap[size++] = hit;
                if (size == k)
                    make_heap(heap, size);
            }
            /* Another term must not offer it again. */
            scores[hit.position - first] = -INFINITY;
        }
    }
    for (Py_ssize_t t = 0; t < count; t++)
        for (Py_ssize_t next = terms[t].begin; next < terms[t].next; next++)
            scores[positions[next] - first] = 0;
    return size;
}

/* Find the `k` best passages, window after window. Return their number, best first in the heap, or
 * -1 if postings are impossible. */
static Py_ssize_t
find_best(double *scores, Term *terms, Py_ssize_t count, const Segment *segment,
          const Formula *formula, Hit *heap, Py_ssize_t k)
{
    const uint32_t *positions = segment->positions;
    Py_ssize_t size = 0;
    for (;;) {
        uint32_t lowest = UINT32_MAX;
        int has_postings = 0;
        for (Py_ssize_t t = 0; t < count; t++) {
            if (terms[t].next < terms[t].stop) {
                has_postings = 1;
                if (positions[terms[t].next] < lowest)
                    lowest = positions[terms[t].next];
            }
        }
        if (!has_postings)
            break;
        uint32_t first = lowest - lowest % WINDOW;
        if (!sum_window(scores, terms, count, segment, formula, first))
            return -1;
        size = offer_window(scores, terms, count, positions, first, heap, size, k);
    }
    if (size < k)
        make_heap(heap, size);
    for (Py_ssize_t last = size - 1; last > 0; last--) {
        Hit worst = heap[0];
        heap[0] = heap[last];
        heap[last] = worst;
        sift_down(heap, last, 0);
    }
    return size;
}

/* Initialize the terms and rank them by number of postings. Return whether all ranges exist. */
static int
set_terms(Term *terms, Py_ssize_t count, const int64_t *ranges, const double *factors,
       Py_ssize_t postings)
{
    for (Py_ssize_t t = 0; t < count; t++) {
        int64_t start = ranges[2 * t], stop = ranges[2 * t + 1];
        if (start < 0 || stop < start || stop > postings)
            return 0;
        terms[t].factor = factors[t];
        terms[t].next = (Py_ssize_t)start;
        terms[t].stop = (Py_ssize_t)stop;
        Py_ssize_t rank = t;
        for (; rank > 0; rank--) {
            const Term *before = &terms[terms[rank - 1].by_rank];
            if (before->stop - before->next <= stop - start)
                break;
            terms[rank].by_rank = terms[rank - 1].by_rank;
        }
        terms[rank].by_rank = t;
    }
    return 1;
}

/* Release buffers, and set an error unless their sizes fit. Return whether they do. */
static int
release(Py_buffer *buffers, int number, int fits)
{
    for (int i = 0; i < number; i++)
        PyBuffer_Release(&buffers[i]);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "arrays of sizes that do not fit");
    return fits;
}

static PyObject *
best(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer buffers[9];
    Py_buffer *positions = &buffers[0], *frequencies = &buffers[1], *ranges = &buffers[2];
    Py_buffer *factors = &buffers[3], *lengths = &buffers[4], *live = &buffers[5];
    Py_buffer *allowed = &buffers[6];
    Py_buffer *best_positions = &buffers[7], *best_scores = &buffers[8];
    Formula formula;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*pdddddy*y*w*w*:best", positions, frequencies, ranges,
                          factors, lengths, &formula.is_lifted, &formula.slope, &formula.constant,
                          &formula.k1, &formula.scale, &formula.delta, live, allowed,
                          best_positions, best_scores))
        return NULL;
    Py_ssize_t postings = positions->len / (Py_ssize_t)sizeof(uint32_t);
    Py_ssize_t count = factors->len / (Py_ssize_t)sizeof(double);
    Py_ssize_t k = best_scores->len / (Py_ssize_t)sizeof(double);
    Segment segment = {
        .positions = positions->buf,
        .frequencies = frequencies->buf,
        .width = postings ? frequencies->len / postings : 1,
        .lengths = lengths->buf,
        .passages = (uint64_t)lengths->len / sizeof(uint32_t),
        .live = live->len ? live->buf : NULL,
        .allowed = allowed->len ? allowed->buf : NULL,
    };
    Py_ssize_t size = -1;
    int fits = ranges->len / (Py_ssize_t)(2 * sizeof(int64_t)) == count
               && (segment.width == 1 || segment.width == 2 || segment.width == 4)
               && (!live->len || (uint64_t)live->len == segment.passages)
               && (!allowed->len || (uint64_t)allowed->len >= (segment.passages + 7) / 8)
               && best_positions->len / (Py_ssize_t)sizeof(int64_t) == k && k >= 1;
    double *scores = spare_window;
    spare_window = NULL;
    if (scores == NULL)
        scores = PyMem_Calloc(WINDOW, sizeof(double));
    Term *terms = PyMem_Calloc((size_t)count + 1, sizeof(Term));
    Hit *heap = PyMem_Calloc((size_t)k + 1, sizeof(Hit));
    if (scores == NULL || terms == NULL || heap == NULL) {
        PyErr_NoMemory();
    }
    else if (fits && (fits = set_terms(terms, count, ranges->buf, factors->buf, postings))) {
        Py_BEGIN_ALLOW_THREADS
        size = find_best(scores, terms, count, &segment, &formula, heap, k);
        int64_t *found_positions = best_positions->buf;
        double *found_scores = best_scores->buf;
        for (Py_ssize_t rank = 0; rank < size; rank++) {
            found_positions[rank] = heap[rank].position;
            found_scores[rank] = heap[rank].score;
        }
        Py_END_ALLOW_THREADS
    }
    /* Only a search that finished has left zeros. */
    if (size >= 0 && spare_window == NULL)
        spare_window = scores;
    else
        PyMem_Free(scores);
    PyMem_Free(terms);
    PyMem_Free(heap);
    if (!release(buffers, 9, fits) || PyErr_Occurred())
        return NULL;
    return PyLong_FromSsize_t(size);
}

/* Return the place of a term from `low` to before `high`, or -1 if it is not there. -2 - place says
 * that the bytes of the term at that place are impossible. */
static Py_ssize_t
search_terms(const char *terms, const int64_t *offsets, Py_ssize_t low, Py_ssize_t high,
             const char *term, Py_ssize_t size)
{
    int64_t begin = offsets[2 * low], end = offsets[2 * high];
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        int64_t start = offsets[2 * middle], stop = offsets[2 * middle + 2];
        if (start < begin || stop < start || end < stop)
            return -2 - middle;
        Py_ssize_t own = (Py_ssize_t)(stop - start);
        int order = memcmp(terms + start, term, (size_t)(own < size ? own : size));
        if (order == 0)
            order = (own > size) - (own < size);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static PyObject *
find(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer buffers[3];
    Py_buffer *terms = &buffers[0], *offsets = &buffers[1], *term = &buffers[2];
    Py_ssize_t low, high, place = -1;
    if (!PyArg_ParseTuple(arguments, "y*y*nny*:find", terms, offsets, &low, &high, term))
        return NULL;
    Py_ssize_t rows = offsets->len / (Py_ssize_t)(2 * sizeof(int64_t));
    const int64_t *first = offsets->buf;
    int fits = 0 <= low && low <= high && high < rows && 0 <= first[2 * low]
               && first[2 * low] <= first[2 * high] && first[2 * high] <= terms->len;
    if (fits)
        place = search_terms(terms->buf, first, low, high, term->buf, term->len);
    if (!release(buffers, 3, fits))
        return NULL;
    return PyLong_FromSsize_t(place);
}

/* Return the inner product. Eight sums side by side fix the order of additions. */
static inline double
dot(const float *vector, const double *query, Py_ssize_t dimensions)
{
    double sums[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    Py_ssize_t i = 0;
    for (; i + 8 <= dimensions; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += (double)vector[i + lane] * query[i + lane];
    for (int lane = 0; i < dimensions; i++, lane++)
        sums[lane] += (double)vector[i] * query[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address)
#endif

/* Wider registers if the processor has them; the operations and their order stay the same. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && !defined(__clang__)
#define TARGET_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TARGET_CLONES
#endif

/* Score the vectors at the given positions. Return whether all positions exist. */
TARGET_CLONES
static int
score_rows(const float *vectors, uint64_t rows, const int64_t *position, Py_ssize_t number,
           const double *query, Py_ssize_t dimensions, double *score)
{
    for (Py_ssize_t i = 0; i < number; i++) {
        if ((uint64_t)position[i] >= rows)
            return 0;
        /* The processor cannot predict which row is next. */
        if (i + ROWS_AHEAD < number && (uint64_t)position[i + ROWS_AHEAD] < rows)
            for (Py_ssize_t ahead = 0; ahead < dimensions; ahead += 16)
                PREFETCH(vectors + position[i + ROWS_AHEAD] * dimensions + ahead);
        score[i] = dot(vectors + position[i] * dimensions, query, dimensions);
    }
    return 1;
}

static PyObject *
dots(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer buffers[4];
    Py_buffer *vectors = &buffers[0], *positions = &buffers[1];
    Py_buffer *query = &buffers[2], *scores = &buffers[3];
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*:dots", vectors, positions, query, scores))
        return NULL;
    Py_ssize_t dimensions = query->len / (Py_ssize_t)sizeof(double);
    Py_ssize_t number = scores->len / (Py_ssize_t)sizeof(double);
    int fits = dimensions > 0 && positions->len / (Py_ssize_t)sizeof(int64_t) == number;
    uint64_t rows = fits ? (uint64_t)vectors->len / (sizeof(float) * (uint64_t)dimensions) : 0;
    Py_BEGIN_ALLOW_THREADS
    fits = fits
           && score_rows(vectors->buf, rows, positions->buf, number, query->buf, dimensions,
                         scores->buf);
    Py_END_ALLOW_THREADS
    if (!release(buffers, 4, fits))
        return NULL;
    /* Not Py_RETURN_NONE: in the headers of Python 3.12 and 3.13.0 it counts no reference, which
       Python 3.11 needs. */
    return Py_NewRef(Py_None);
}

/* Score vectors of eight bits, each with a scale, against a query of sixteen bits. */
TARGET_CLONES
static void
multiply_codes(const int8_t *codes, const float *scale, Py_ssize_t rows, const int16_t *query,
               Py_ssize_t dimensions, float *score)
{
    for (Py_ssize_t row = 0; row < rows; row++, codes += dimensions) {
        int32_t sum = 0;
        for (Py_ssize_t i = 0; i < dimensions; i++)
            sum += (int32_t)(int16_t)codes[i] * (int32_t)query[i];
        score[row] = (float)sum * scale[row];
    }
}

/* Select the positions of allowed vectors whose score is above the k-th best less a margin. Return
 * their number, or -1 without memory. */
static Py_ssize_t
select_candidates(float *score, Py_ssize_t rows, const uint8_t *allowed, Py_ssize_t k,
                  double margin, int64_t *position)
{
    Hit *heap = malloc(sizeof(Hit) * (size_t)k);
    if (heap == NULL)
        return -1;
    Py_ssize_t size = 0, number = 0;
    for (Py_ssize_t row = 0; row < rows; row++) {
        if (allowed != NULL && !is_set(allowed, (uint64_t)row)) {
            score[row] = -INFINITY;
            continue;
        }
        Hit hit = {score[row], (uint32_t)row};
        if (size < k) {
            heap[size++] = hit;
            if (size == k)
                make_heap(heap, size);
        } else if (is_worse(heap[0], hit)) {
            heap[0] = hit;
            sift_down(heap, size, 0);
        }
    }
    double least = size == k ? heap[0].score - margin : -INFINITY;
    free(heap);
    for (Py_ssize_t row = 0; row < rows; row++)
        if (score[row] > least)
            position[number++] = row;
    return number;
}

static PyObject *
near(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer buffers[6];
    Py_buffer *codes = &buffers[0], *scales = &buffers[1];
    Py_buffer *query = &buffers[2], *allowed = &buffers[3];
    Py_buffer *scores = &buffers[4], *positions = &buffers[5];
    Py_ssize_t k;
    double margin;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*ndw*w*:near", codes, scales, query, allowed, &k,
                          &margin, scores, positions))
        return NULL;
    Py_ssize_t dimensions = query->len / (Py_ssize_t)sizeof(int16_t), number = 0;
    Py_ssize_t rows = scores->len / (Py_ssize_t)sizeof(float);
    int fits = codes->len == rows * dimensions && scales->len == scores->len && k > 0 && k <= rows
               && positions->len == rows * (Py_ssize_t)sizeof(int64_t)
               && (allowed->len == 0 || allowed->len >= (rows + 7) / 8);
    Py_BEGIN_ALLOW_THREADS
    if (fits) {
        multiply_codes(codes->buf, scales->buf, rows, query->buf, dimensions, scores->buf);
        number = select_candidates(scores->buf, rows, allowed->len ? allowed->buf : NULL, k,
                                   margin, positions->buf);
    }
    Py_END_ALLOW_THREADS
    if (!release(buffers, 6, fits))
        return NULL;
    return number < 0 ? PyErr_NoMemory() : PyLong_FromSsize_t(number);
}

static PyMethodDef methods[] = {
    {"best", best, METH_VARARGS,
     "best(positions, frequencies, ranges, factors, lengths, *formula, live, allowed, "
     "best_positions, best_scores): the number of passages, -1 if postings are impossible."},
    {"dots", dots, METH_VARARGS,
     "dots(vectors, positions, query, scores): set the scores to the inner products of the vectors "
     "at the positions with the query."},
    {"find", find, METH_VARARGS, "find(terms, offsets, low, high, term): its place, or -1."},
    {"near", near, METH_VARARGS,
     "near(codes, scales, query, allowed, k, margin, scores, positions): the number of vectors of "
     "eight bits whose score is above the k-th best less a margin."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_inner_loops",
    .m_doc = "See indexes.compiled.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__inner_loops(void)
{
    return PyModuleDef_Init(&definition);
}

/* What a query does for every posting or passage: BM25 looks up terms, weighs and finds the best
 * passages; a filter looks up what its values say, and counts what inverted lists hold of it.
 *
 * The modules that call these functions hold the same in Python and NumPy, for where there was no
 * compiler. Both do the same operations on the same numbers in the same order, so that scores are
 * equal to the last bit; that is why products and sums must not be contracted (see setup.py).
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define WINDOW 16384
/* Codes of which it is found out at once whether any counts. */
#define STRIDE 16

typedef struct {
    double score;
    uint32_t position;
} Found;

typedef struct {
    Py_ssize_t next; /* the first posting that is not in a window yet, of those of all terms */
    Py_ssize_t stop;
    Py_ssize_t begin; /* the first posting in the window */
    Py_ssize_t rarer; /* the number of the term that is offered in this one's place */
} Term;

/* (WINDOW,) zeros that the last search has left behind, or NULL. Changed with the GIL held. */
static double *spare_window = NULL;

/* Among equal scores the later passage is the worse one. */
static int
is_worse(Found one, Found other)
{
    return one.score < other.score || (one.score == other.score && one.position > other.position);
}

/* Restore a heap with the worst on top, but for the one at `place`, below it. */
static void
sift_down(Found *heap, Py_ssize_t size, Py_ssize_t place)
{
    Found moved = heap[place];
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
make_heap(Found *heap, Py_ssize_t size)
{
    for (Py_ssize_t place = size / 2; place-- > 0;)
        sift_down(heap, size, place);
}

/* Add what the terms give to the passages of a window. Returns whether positions ascend. */
static int
sum_window(double *scores, Term *terms, Py_ssize_t count, const uint32_t *positions,
           const double *values, uint32_t first)
{
    for (Py_ssize_t t = 0; t < count; t++) {
        Py_ssize_t next = terms[t].next, stop = terms[t].stop;
        int64_t last = -1;
        terms[t].begin = next;
        for (; next < stop; next++) {
            int64_t place = (int64_t)positions[next] - first;
            if (place >= WINDOW)
                break;
            if (place <= last)
                return 0;
            scores[place] += values[next];
            last = place;
        }
        terms[t].next = next;
    }
    return 1;
}

/* Offer each passage of the window that holds a term, once: those of rare terms, which score most,
 * first. Returns the size of the heap. */
static Py_ssize_t
offer_window(double *scores, const Term *terms, Py_ssize_t count, const uint32_t *positions,
             uint32_t first, Found *heap, Py_ssize_t size, Py_ssize_t k)
{
    for (Py_ssize_t rank = 0; rank < count; rank++) {
        Py_ssize_t t = terms[rank].rarer;
        for (Py_ssize_t next = terms[t].begin; next < terms[t].next; next++) {
            Found found = {scores[positions[next] - first], positions[next]};
            if (size == k) {
                if (!is_worse(heap[0], found))
                    continue;
                heap[0] = found;
                sift_down(heap, size, 0);
            }
            else if (found.score == -INFINITY) {
                continue;
            }
            else {
                heap[size++] = found;
                if (size == k)
                    make_heap(heap, size);
            }
            /* Not again, by another term. */
            scores[found.position - first] = -INFINITY;
        }
    }
    for (Py_ssize_t t = 0; t < count; t++)
        for (Py_ssize_t next = terms[t].begin; next < terms[t].next; next++)
            scores[positions[next] - first] = 0;
    return size;
}

/* One window of passages after the other is summed, term after term, in an array that stays in the
 * cache; then each posting offers its passage. Returns how many were found, best first, or -1 where
 * positions do not ascend. */
static Py_ssize_t
find_best(double *scores, Term *terms, Py_ssize_t count, const uint32_t *positions,
          const double *values, Found *heap, Py_ssize_t k)
{
    Py_ssize_t size = 0;
    for (;;) {
        uint32_t lowest = UINT32_MAX;
        int left = 0;
        for (Py_ssize_t t = 0; t < count; t++) {
            if (terms[t].next < terms[t].stop) {
                left = 1;
                if (positions[terms[t].next] < lowest)
                    lowest = positions[terms[t].next];
            }
        }
        if (!left)
            break;
        uint32_t first = lowest - lowest % WINDOW;
        if (!sum_window(scores, terms, count, positions, values, first))
            return -1;
        size = offer_window(scores, terms, count, positions, first, heap, size, k);
    }
    if (size < k)
        make_heap(heap, size);
    for (Py_ssize_t last = size - 1; last > 0; last--) {
        Found worst = heap[0];
        heap[0] = heap[last];
        heap[last] = worst;
        sift_down(heap, last, 0);
    }
    return size;
}

/* Divide the postings into terms, and rank these by their number of postings. Returns whether the
 * counts add up. */
static int
divide(Term *terms, Py_ssize_t count, const int64_t *counts, Py_ssize_t postings)
{
    Py_ssize_t next = 0;
    for (Py_ssize_t t = 0; t < count; t++) {
        if (counts[t] < 0 || counts[t] > postings - next)
            return 0;
        terms[t].next = next;
        terms[t].stop = next += (Py_ssize_t)counts[t];
        Py_ssize_t rank = t;
        for (; rank > 0 && counts[terms[rank - 1].rarer] > counts[t]; rank--)
            terms[rank].rarer = terms[rank - 1].rarer;
        terms[rank].rarer = t;
    }
    return next == postings;
}

/* Release what was given. Returns whether its sizes fit; sets an error where they do not. */
static int
release(Py_buffer *given, int number, int fits)
{
    for (int i = 0; i < number; i++)
        PyBuffer_Release(&given[i]);
    if (!fits)
        PyErr_SetString(PyExc_ValueError, "arrays of sizes that do not fit");
    return fits;
}

static PyObject *
best(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer given[5];
    Py_buffer *positions = &given[0], *values = &given[1], *counts = &given[2];
    Py_buffer *best_positions = &given[3], *best_scores = &given[4];
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*w*:best", positions, values, counts,
                          best_positions, best_scores))
        return NULL;
    Py_ssize_t postings = positions->len / (Py_ssize_t)sizeof(uint32_t);
    Py_ssize_t count = counts->len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t k = best_scores->len / (Py_ssize_t)sizeof(double);
    Py_ssize_t size = -1;
    int fits = values->len / (Py_ssize_t)sizeof(double) == postings
               && best_positions->len / (Py_ssize_t)sizeof(int64_t) == k && k >= 1;
    double *scores = spare_window;
    spare_window = NULL;
    if (scores == NULL)
        scores = PyMem_Calloc(WINDOW, sizeof(double));
    Term *terms = PyMem_Calloc((size_t)count + 1, sizeof(Term));
    Found *heap = PyMem_Calloc((size_t)k + 1, sizeof(Found));
    if (scores == NULL || terms == NULL || heap == NULL) {
        PyErr_NoMemory();
    }
    else if (fits && (fits = divide(terms, count, counts->buf, postings))) {
        Py_BEGIN_ALLOW_THREADS
        size = find_best(scores, terms, count, positions->buf, values->buf, heap, k);
        int64_t *found_positions = best_positions->buf;
        double *found_scores = best_scores->buf;
        for (Py_ssize_t rank = 0; rank < size; rank++) {
            found_positions[rank] = heap[rank].position;
            found_scores[rank] = heap[rank].score;
        }
        Py_END_ALLOW_THREADS
        if (size < 0)
            PyErr_SetString(PyExc_ValueError, "positions of a term that do not ascend");
    }
    /* What was not finished may have left something behind. */
    if (size >= 0 && spare_window == NULL)
        spare_window = scores;
    else
        PyMem_Free(scores);
    PyMem_Free(terms);
    PyMem_Free(heap);
    release(given, 5, fits);
    return size < 0 ? NULL : PyLong_FromSsize_t(size);
}

/* How often posting `i` holds its term; frequencies have `width` bytes each. */
static uint32_t
frequency_at(const void *frequencies, Py_ssize_t width, Py_ssize_t i)
{
    switch (width) {
    case 1:
        return ((const uint8_t *)frequencies)[i];
    case 2:
        return ((const uint16_t *)frequencies)[i];
    default:
        return ((const uint32_t *)frequencies)[i];
    }
}

/* Returns whether passages exist, ascend, and are as long as the term is frequent there. */
static int
weigh_term(const uint32_t *positions, const void *frequencies, Py_ssize_t width, Py_ssize_t start,
           Py_ssize_t stop, const uint32_t *lengths, Py_ssize_t passages, double factor,
           double slope, double constant, double k1, double *values)
{
    int64_t last = -1;
    for (Py_ssize_t i = start; i < stop; i++) {
        uint32_t frequency = frequency_at(frequencies, width, i);
        if (positions[i] <= last || positions[i] >= passages || frequency == 0
            || lengths[positions[i]] < frequency)
            return 0;
        last = positions[i];
        double norm = lengths[positions[i]] * slope;
        norm += constant;
        norm *= k1;
        norm += frequency;
        values[i] = factor * (frequency / norm);
    }
    return 1;
}

static PyObject *
weigh(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer given[6];
    Py_buffer *positions = &given[0], *frequencies = &given[1], *counts = &given[2];
    Py_buffer *factors = &given[3], *lengths = &given[4], *values = &given[5];
    double slope, constant, k1;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*dddw*:weigh", positions, frequencies, counts,
                          factors, lengths, &slope, &constant, &k1, values))
        return NULL;
    Py_ssize_t postings = positions->len / (Py_ssize_t)sizeof(uint32_t);
    Py_ssize_t count = counts->len / (Py_ssize_t)sizeof(int64_t);
    Py_ssize_t passages = lengths->len / (Py_ssize_t)sizeof(uint32_t);
    Py_ssize_t width = postings ? frequencies->len / postings : 1;
    int fits = values->len / (Py_ssize_t)sizeof(double) == postings
               && factors->len / (Py_ssize_t)sizeof(double) == count
               && (width == 1 || width == 2 || width == 4);
    int sound = 1;
    Py_ssize_t start = 0;
    for (Py_ssize_t t = 0; fits && sound && t < count; t++) {
        int64_t own = ((const int64_t *)counts->buf)[t];
        fits = own >= 0 && own <= postings - start;
        if (fits)
            sound = weigh_term(positions->buf, frequencies->buf, width, start, start + own,
                               lengths->buf, passages, ((const double *)factors->buf)[t], slope,
                               constant, k1, values->buf);
        start += (Py_ssize_t)own;
    }
    fits = fits && (!sound || start == postings);
    if (!release(given, 6, fits))
        return NULL;
    return PyBool_FromLong(sound);
}

/* The place of a term between two others, -1 if it is not there, or -2 - place where the bytes of
 * the term with that place are impossible. */
static Py_ssize_t
search_terms(const char *terms, const int64_t *offsets, Py_ssize_t low, Py_ssize_t high,
             const char *wanted, Py_ssize_t size)
{
    int64_t begin = offsets[2 * low], end = offsets[2 * high];
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        int64_t start = offsets[2 * middle], stop = offsets[2 * middle + 2];
        if (start < begin || stop < start || end < stop)
            return -2 - middle;
        Py_ssize_t own = (Py_ssize_t)(stop - start);
        int order = memcmp(terms + start, wanted, (size_t)(own < size ? own : size));
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
    Py_buffer given[3];
    Py_buffer *terms = &given[0], *offsets = &given[1], *wanted = &given[2];
    Py_ssize_t low, high, place = -1;
    if (!PyArg_ParseTuple(arguments, "y*y*nny*:find", terms, offsets, &low, &high, wanted))
        return NULL;
    Py_ssize_t rows = offsets->len / (Py_ssize_t)(2 * sizeof(int64_t));
    const int64_t *first = offsets->buf;
    int fits = 0 <= low && low <= high && high < rows && 0 <= first[2 * low]
               && first[2 * low] <= first[2 * high] && first[2 * high] <= terms->len;
    if (fits)
        place = search_terms(terms->buf, first, low, high, wanted->buf, wanted->len);
    if (!release(given, 3, fits))
        return NULL;
    return PyLong_FromSsize_t(place);
}

static PyObject *
spread(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer given[3];
    Py_buffer *truth = &given[0], *codes = &given[1], *mask = &given[2];
    if (!PyArg_ParseTuple(arguments, "y*y*w*:spread", truth, codes, mask))
        return NULL;
    Py_ssize_t passages = codes->len / (Py_ssize_t)sizeof(uint16_t);
    const uint16_t *code = codes->buf;
    const uint8_t *says = truth->buf;
    uint8_t *found = mask->buf;
    /* Whatever a code is, the truth has it. */
    int fits = mask->len == passages && truth->len > UINT16_MAX;
    if (fits)
        for (Py_ssize_t i = 0; i < passages; i++)
            found[i] = says[code[i]];
    if (!release(given, 3, fits))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
spread_at(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer given[4];
    Py_buffer *truth = &given[0], *codes = &given[1], *places = &given[2], *mask = &given[3];
    if (!PyArg_ParseTuple(arguments, "y*y*y*w*:spread_at", truth, codes, places, mask))
        return NULL;
    Py_ssize_t number = places->len / (Py_ssize_t)sizeof(int64_t);
    uint64_t size = (uint64_t)codes->len / sizeof(uint16_t);
    const uint16_t *code = codes->buf;
    const uint8_t *says = truth->buf;
    const uint64_t *place = places->buf;
    uint8_t *found = mask->buf;
    int fits = mask->len == number && truth->len > UINT16_MAX;
    for (Py_ssize_t i = 0; fits && i < number; i++) {
        /* What is negative is too large as well. */
        fits = place[i] < size;
        if (fits)
            found[i] = says[code[place[i]]];
    }
    if (!release(given, 4, fits))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
pick(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer given[3];
    Py_buffer *truth = &given[0], *codes = &given[1], *places = &given[2];
    if (!PyArg_ParseTuple(arguments, "y*y*w*:pick", truth, codes, places))
        return NULL;
    Py_ssize_t number = codes->len / (Py_ssize_t)sizeof(uint16_t);
    Py_ssize_t room = places->len / (Py_ssize_t)sizeof(int64_t), found = 0;
    const uint16_t *code = codes->buf;
    const uint8_t *says = truth->buf;
    int64_t *place = places->buf;
    int fits = truth->len > UINT16_MAX;
    for (Py_ssize_t start = 0; fits && start < number; start += STRIDE) {
        Py_ssize_t stop = number;
        if (number - start >= STRIDE) {
            uint8_t any = 0;
            for (Py_ssize_t i = 0; i < STRIDE; i++)
                any |= says[code[start + i]];
            if (!any)
                continue;
            stop = start + STRIDE;
        }
        for (Py_ssize_t i = start; fits && i < stop; i++) {
            if (says[code[i]]) {
                fits = found < room;
                if (fits)
                    place[found++] = i;
            }
        }
    }
    if (!release(given, 3, fits))
        return NULL;
    return PyLong_FromSsize_t(found);
}

static PyMethodDef methods[] = {
    {"best", best, METH_VARARGS,
     "best(positions, values, counts, best_positions, best_scores): how many were found."},
    {"find", find, METH_VARARGS, "find(terms, offsets, low, high, wanted): its place, or -1."},
    {"pick", pick, METH_VARARGS,
     "pick(truth, codes, places): set the first places to those of the codes that the truth says "
     "so of; how many they are."},
    {"spread", spread, METH_VARARGS,
     "spread(truth, codes, mask): set the mask to what the truth says of each code."},
    {"spread_at", spread_at, METH_VARARGS,
     "spread_at(truth, codes, places, mask): the same for the codes at some places."},
    {"weigh", weigh, METH_VARARGS,
     "weigh(positions, frequencies, counts, factors, lengths, slope, constant, k1, values): "
     "whether the postings are possible."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_inner_loops",
    .m_doc = "See indexes.bm25.compiled.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__inner_loops(void)
{
    return PyModuleDef_Init(&definition);
}

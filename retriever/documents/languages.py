"""The languages of a text, at most one a script, by scripts, function words and n-grams.

The language is the script's default, such as English, if the text has many of its function words.
Otherwise py3langid detects the language by the n-grams of the first words. The detected language
counts only if it is clearly more likely than the default. Short texts have the default language.

Indexes of earlier releases use function words alone. The language with most of them is chosen if
they are many, else the default.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cache, lru_cache
from itertools import chain, product
from typing import Any

# Number of words of a text that are inspected.
SAMPLE_WORDS = 200
# The least share of function words for a language other than the default, and their least multiple
# of the default's function words.
_LEAST_SHARE = 0.12
_LEAST_MULTIPLE = 1.5
# Maximum number of function words that are no evidence.
_FEW_FUNCTION_WORDS = 2
# Number of words that suffices to detect a language outside the list of the script. With function
# words alone, it is the number of words without one of the default language.
_MANY_WORDS = 20
# The least number of words of a text whose language is detected. Fewer are often names.
_LEAST_WORDS = 4
# The least lead over the default language in log-likelihood. With 0, 1.6% of 10,000 short English
# sentences are attributed to another language, with 8 there are 0.03%. Without a function word of
# the language, the lead must also reach the second value per character. Lists of names or chemicals
# have n-grams of any language, but no function words.
_LEAST_MARGIN = 8.0
_MARGIN_PER_CHARACTER = 0.5
# The least share of a language in the passages of its script for queries to be read in it.
_LEAST_INDEX_SHARE = 0.03
# Maximum length of a function word in letters. Longer words of the lists are often content, such as
# "estado", "tiempo" and "trabajo".
_LONGEST_FUNCTION_WORD = 4
# The letters of each script as the inside of a set, and its languages, the default first.
_SCRIPTS = {
    "latin": (
        "A-Za-z\u00aa-\u024f\u1e00-\u1eff",
        "english catalan czech danish dutch finnish french german hungarian indonesian italian "
        "norwegian polish portuguese romanian slovak spanish swedish turkish vietnamese",
    ),
    "cyrillic": ("\u0400-\u052f", "russian bulgarian ukrainian"),
    "arabic": ("\u0600-\u06ff\u0750-\u077f", "arabic persian"),
    "devanagari": ("\u0900-\u097f", "hindi"),
    "greek": ("\u0370-\u03ff\u1f00-\u1fff", "greek"),
    "hebrew": ("\u0590-\u05ff", "hebrew"),
    "armenian": ("\u0530-\u058f", "armenian"),
    "tamil": ("\u0b80-\u0bff", "tamil"),
}
# py3langid's codes of these languages, in the same order, and of other languages of the script.
# "zxx" is code and markup. Other languages of the Latin script count as the default.
_CODES = {
    "latin": (
        "en ca cs da nl fi fr de hu id it no pl pt ro sk es sv tr vi",
        "cy eo et eu ga hr is la lt lv mt sl sq sw zxx",
    ),
    "cyrillic": ("ru bg uk", "ba be kk ky mk mn sr tg tt"),
    "arabic": ("ar fa", "ps sdh ug ur"),
    "devanagari": ("hi", "mr ne sa"),
}
# Scripts with languages that have no list, such as Kazakh and Marathi.
_OPEN_SCRIPTS = ("cyrillic", "arabic", "devanagari")
_LANGUAGES = {script: languages.split() for script, (_, languages) in _SCRIPTS.items()}
DEFAULT_LANGUAGES: dict[str | None, str] = {
    script: languages[0] for script, languages in _LANGUAGES.items()
}
_FIRST_LETTER = re.compile(
    "|".join(f"(?P<{script}>[{row[0]}])" for script, row in _SCRIPTS.items())
)
SCRIPT_OF = {language: script for script, row in _LANGUAGES.items() for language in row} | {
    f"other {script}": script for script in _OPEN_SCRIPTS
}
# Function words beyond Lucene's stop words: pronouns, auxiliaries, question words.
_ENGLISH_LIST = """
    about above after again all am any because been before being below between both can cannot could
    did do does doing done don't down during each few from further get had has have having he her
    here hers him his how i i'd i'm i've its just like me may might more most much must my need nor
    now off once only other our ours out over own please same shall she should so some than them
    through too under until up us very want was we were what when where which while who whom whose
    why would you your yours
    """
ENGLISH_FUNCTION_WORDS = frozenset(_ENGLISH_LIST.split())
# Function words of questions: question words, pronouns, auxiliaries. They are dropped where a query
# has other words. Words that are also content are left out, such as German "Waren" (goods), French
# "son" (sound), Spanish "este" (east) and Dutch "haar" (hair).
_QUERY_FUNCTION_WORDS = {
    "english": """
        how what when where which who whom whose why
        i me my myself you your yours yourself he him his himself she her hers herself it its itself
        we our ours ourselves they them themselves those
        am was were been did does doing had has have having
        could should would shall cannot not to just please so than very
        how's what's when's where's who's why's it's that's there's let's
        i'm i've i'd i'll you're you've you'd you'll we're we've we'd we'll they're they've
        don't doesn't didn't can't couldn't won't wouldn't shouldn't
        isn't aren't wasn't weren't hasn't haven't hadn't
    """,
    "german": """
        wie was wer wen wem wessen wann warum wieso weshalb wo woher wohin womit wofür wodurch worin
        worauf welche welchem welchen welcher welches
        ich mich mir mein meine meinem meinen meiner du dich dir dein deine deinem deinen deiner
        er ihn ihm sie ihr ihre ihrem ihren ihrer wir unser unsere unserem unseren unserer man
        ein eine einem einen einer eines diese diesem diesen dieser dieses
        ist sind war wird werden wurde wurden worden hat habe haben hatte hatten
        kann kannst können könnte könnten muss müssen darf dürfen sollte sollten
    """,
    "french": """
        que qui quoi quel quelle quels quelles lequel laquelle lesquels lesquelles où quand comment
        pourquoi combien
        je tu il elle on nous vous ils elles me te se mon ma mes ta tes sa ses notre nos votre vos
        leur leurs ce cet cette ces cela
        est sont était étaient être avons avez ont avait avaient avoir peut peux peuvent dois doit
        doivent
    """,
    "spanish": """
        que qué quien quién quienes quiénes cual cuál cuales cuáles cuando cuándo cuanto cuánto
        cuanta cuánta cuantos cuántos cuantas cuántas donde dónde como cómo
        yo tú él ella ellos ellas nosotros usted ustedes me te se nos mi mis tu tus su sus
        nuestro nuestra nuestros nuestras esta estos estas ese esa esos esas
        es fue fueron está están estaba estaban ha han había habían hay puede pueden puedo podría
    """,
    "italian": """
        che chi cosa quale quali quando quanto quanta quanti quante dove come perché
        io tu lui lei noi voi loro mi ti ci vi mio mia miei mie tuo tua tuoi tue suo sua suoi sue
        nostro nostra nostri nostre questo questa questi queste quello quella quelli quelle
        è sono erano essere ha hanno aveva avevano avere può possono posso
    """,
    "portuguese": """
        que quem qual quais quando quanto quanta quantos quantas onde aonde como porque porquê
        eu você vocês ele ela eles elas me te se meu minha meus minhas seu sua seus suas
        nosso nossa nossos nossas este esta estes estas esse essa esses essas isto isso
        é foi foram está estão estava estavam tem têm tinha pode podem posso poderia
    """,
    "dutch": """
        wie wat waar waarom wanneer welk welke hoe hoeveel waarmee waarin waarvan waardoor
        ik mij mijn jij jou jouw jullie hij hem zij wij ons onze hun deze
        is zijn wordt worden werd werden heeft hebben had hadden
        kan kunnen konden moet moeten zou zouden zal zullen
    """,
    "romanian": """
        ce cine cui care când cand unde cum cât câtă câți câte
        eu tu el ea voi ei ele mă te se meu mea tău ta său sa acest această acești aceste
        este sunt erau fost avea au poate pot
    """,
    "turkish": """
        ne nedir neden niçin niye nasıl nerede nereye nereden hangi hangisi kim kimin kimi kime kaç
        mi mı mu mü midir mıdır
        sen o biz siz onlar benim senin onun bizim sizin onların bu şu
    """,
}
QUERY_FUNCTION_WORDS = {
    language: frozenset(words.split()) for language, words in _QUERY_FUNCTION_WORDS.items()
}
# Words that are function words beside another one, as in "can I" and "how to do", and content by
# themselves, as in "trash can" and "do notation".
_AMBIGUOUS_LIST = "about any can do like may might must need some want"
AMBIGUOUS_FUNCTION_WORDS = {"english": frozenset(_AMBIGUOUS_LIST.split())}


@lru_cache(1 << 14)
def script_of(word: str) -> str | None:
    """Return the script of the first letter of a word; None if its languages are not told apart."""
    match = _FIRST_LETTER.search(word)
    return match.lastgroup if match else None


def function_words(language: str, stop_words: Iterable[str]) -> list[str]:
    """Return the words of a stop-word list that indicate a language, as ``language:word``."""
    return [
        f"{language}:{word}"
        for word in stop_words
        if language == "english" or len(word) <= _LONGEST_FUNCTION_WORD
    ]


def text_languages(
    words: Sequence[str], ascii_only: bool, languages_by_word: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Return the languages of a text, sorted."""
    counts, scripts = _count_evidence(words, ascii_only, languages_by_word)
    languages = []
    for script, number in scripts.items():
        default, *alternatives = _LANGUAGES[script]
        most = max(map(counts.__getitem__, alternatives), default=0)
        is_default = counts[default] > max(
            _FEW_FUNCTION_WORDS, _LEAST_SHARE * number, _LEAST_MULTIPLE * most
        )
        if is_default or number < _LEAST_WORDS or script not in _CODES:
            languages.append(default)
        else:
            languages.append(_language_by_ngrams(words, script, counts))
    return tuple(sorted(languages))


def languages_by_function_words(
    words: Sequence[str], ascii_only: bool, languages_by_word: Mapping[str, Iterable[str]]
) -> tuple[str, ...]:
    """Return the languages of a text as earlier releases detected them, sorted."""
    counts, scripts = _count_evidence(words, ascii_only, languages_by_word)
    languages = []
    for script, number in scripts.items():
        default, *alternatives = _LANGUAGES[script]
        best = max(alternatives, key=counts.__getitem__, default=default)
        if counts[best] > max(
            _FEW_FUNCTION_WORDS, _LEAST_SHARE * number, _LEAST_MULTIPLE * counts[default]
        ):
            languages.append(best)
        elif script in _OPEN_SCRIPTS and number >= _MANY_WORDS and not counts[default]:
            languages.append(f"other {script}")
        else:
            languages.append(default)
    return tuple(sorted(languages))


def query_language_choices(
    words: Sequence[str],
    ascii_only: bool,
    languages_by_word: Mapping[str, Iterable[str]],
    passage_counts: Mapping[str, int],
) -> Iterator[tuple[str, ...]]:
    """Yield the combinations of languages that a query may be in, one language a script.

    `passage_counts` has the number of passages of the index in each language.
    """
    counts, scripts = _count_evidence(words, ascii_only, languages_by_word)
    choices = []
    for script in sorted(scripts):
        script_counts = {
            language: number
            for language, number in passage_counts.items()
            if SCRIPT_OF.get(language) == script
        }
        least = _LEAST_INDEX_SHARE * sum(script_counts.values())
        likely = (language for language, number in script_counts.items() if number >= least)
        ranked = sorted(likely, key=lambda language: -counts[language])
        if len(ranked) > 1 and counts[ranked[0]] > counts[ranked[1]]:
            ranked = ranked[:1]
        choices.append(ranked or _LANGUAGES[script][:1])
    return product(*choices)


def possible_languages(word: str, index_languages: Iterable[str]) -> set[str]:
    """Return the languages of an index in which passages can have a word, by its script."""
    script = script_of(word)
    default = _LANGUAGES[script][:1] if script else [""]
    return {
        *default,
        *(language for language in index_languages if script and SCRIPT_OF.get(language) == script),
    }


def _language_by_ngrams(words: Sequence[str], script: str, counts: Mapping[str, int]) -> str:
    """Return the language of the words of a script, by n-grams and by its function words."""
    default, *alternatives = _LANGUAGES[script]
    script_words = [word for word in words[:SAMPLE_WORDS] if script_of(word) == script]
    text = " ".join(script_words)
    ranking = _script_identifier(script).rank(text)
    default_code, *codes = _CODES[script][0].split()
    best_code, score = ranking[0]
    if best_code in codes:
        language = alternatives[codes.index(best_code)]
        has_function_words = counts.get(language, 0) > 0
    elif script in _OPEN_SCRIPTS and len(script_words) >= _MANY_WORDS:
        language = f"other {script}"
        has_function_words = not counts.get(default)
    else:
        return default
    margin = (
        _LEAST_MARGIN
        if has_function_words
        else max(_LEAST_MARGIN, _MARGIN_PER_CHARACTER * len(text))
    )
    return language if score - dict(ranking)[default_code] > margin else default


@cache
def _script_identifier(script: str) -> Any:
    """Return the model that ranks the languages of a script."""
    identifier = copy(_whole_identifier())
    identifier.set_languages(" ".join(_CODES[script]).split())
    return identifier


@cache
def _whole_identifier() -> Any:
    # Loading takes half a second, and queries do not need it.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)


def _count_evidence(
    words: Sequence[str], ascii_only: bool, languages_by_word: Mapping[str, Iterable[str]]
) -> tuple[Counter[str], dict[str, int]]:
    """Count the function words of each language and all words of each script.

    Only the first words of a text are counted.
    """
    first = words[:SAMPLE_WORDS]
    counts = Counter(chain.from_iterable(filter(None, map(languages_by_word.get, first))))
    if ascii_only:
        return counts, {"latin": len(first)}
    scripts = Counter(map(script_of, first))
    return counts, {script: number for script, number in scripts.items() if script}

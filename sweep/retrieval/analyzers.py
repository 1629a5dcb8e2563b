"""Texts → terms, the same way for chunks and queries: words, stop words, stems, character bigrams.

Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese are written without blanks between words, or with words that
change with their endings. A run of their characters becomes its overlapping pairs, as in Lucene's CJKAnalyzer; script
tells which characters those are, so mixed text works under every analyzer but "plain".
"""

__all__ = ["ANALYZERS", "LANGUAGES", "analyze", "choose_analyzer", "stop_words"]

import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.metadata import distribution
from itertools import pairwise
from runpy import run_path
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
from scipy import sparse

# Snowball's languages and what ISO 639 calls them.
LANGUAGES = {
    "arabic": "ar", "armenian": "hy", "basque": "eu", "catalan": "ca", "czech": "cs", "danish": "da", "dutch": "nl",
    "english": "en", "esperanto": "eo", "estonian": "et", "finnish": "fi", "french": "fr", "german": "de",
    "greek": "el", "hindi": "hi", "hungarian": "hu", "indonesian": "id", "irish": "ga", "italian": "it",
    "lithuanian": "lt", "nepali": "ne", "norwegian": "no", "persian": "fa", "polish": "pl", "portuguese": "pt",
    "romanian": "ro", "russian": "ru", "serbian": "sr", "sesotho": "st", "spanish": "es", "swedish": "sv",
    "tamil": "ta", "turkish": "tr", "yiddish": "yi",
}  # fmt: skip
ANALYZERS = ("auto", "plain", "bigrams", *LANGUAGES)

# UAX #14 calls SA the letters of South East Asia, among which only a dictionary finds the words.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Bopomofo}\p{Line_Break=SA}ーｰ〆]"
_WORD = regex.compile(r"[\w\p{M}]+")  # vowel signs and other marks belong to their word
_RUN = regex.compile(rf"[[\w\p{{M}}]&&{_UNSPACED}][[\w\p{{M}}]&&[{_UNSPACED}\p{{M}}]]*", regex.V1)
_WORD_OR_RUN = regex.compile(rf"{_RUN.pattern}|[[\w\p{{M}}]--{_UNSPACED}]+", regex.V1)

_SAMPLE, _PART = 200, 500  # texts (up to twice as many), and characters of each, that show the language


def analyze(texts: Sequence[str], analyzer: str) -> tuple[sparse.csr_array, list[str]]:
    """Return (term counts int32 (n, terms), the terms) of the texts.

    "plain": words in lower case, accents in their composed form (NFC). "bigrams": the same, and runs of scripts without
    blanks as pairs of characters. A language: as "bigrams", its stop words dropped and the rest stemmed by Snowball.
    Raises ValueError for another name, and for "auto", which `choose_analyzer` resolves.
    """
    if analyzer not in ANALYZERS or analyzer == "auto":
        raise ValueError(f"analyzer {analyzer!r} is not one of {', '.join(ANALYZERS[1:])}")
    split = _words if analyzer == "plain" else _words_and_bigrams
    codes: defaultdict[str, int] = defaultdict(lambda: len(codes))
    columns = array("i")
    ends = [0]
    for text in texts:
        columns.extend(map(codes.__getitem__, split(_folded(text, analyzer))))
        ends.append(len(columns))
    terms, column = list(codes), np.array(columns, np.int32)
    row = np.repeat(np.arange(len(texts), dtype=np.int32), np.diff(ends))
    if analyzer in LANGUAGES:
        terms, stems = _stemmed(terms, analyzer)
        column = stems[column]
        row, column = row[column >= 0], column[column >= 0]
    counts = sparse.coo_array((np.ones(len(row), np.int32), (row, column)), shape=(len(texts), len(terms)))
    return counts.tocsr(), terms


def choose_analyzer(texts: Sequence[str]) -> str:
    """Return the analyzer that "auto" stands for on these texts: that of their language.

    Where the language has no stemmer: "bigrams" if any text holds a script without blanks, else "plain". The language
    is told by the letter sequences in a sample of evenly spaced texts (py3langid), so the same texts give the same
    answer.
    """
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    step = max(1, len(texts) // _SAMPLE)
    sample = "\n".join(text[:_PART] for text in texts[::step])
    if regex.search(r"\p{L}", sample):
        found, _ = LanguageIdentifier.from_model_file(MODEL_FILE).classify(sample)  # 70 MB, not kept
        found = "no" if found == "nn" else found  # both are Norwegian
        for language, code in LANGUAGES.items():
            if code == found:
                return language
    return "bigrams" if any(not text.isascii() and _RUN.search(text) for text in texts) else "plain"


@cache
def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language as bm25s ships them, in English Lucene's 33; none where it has no list."""
    name = "EN" if language == "english" else language.upper()
    return frozenset(_folded(word, language) for word in _stop_word_lists().get(f"STOPWORDS_{name}", ()))


@cache
def _stop_word_lists() -> dict[str, Any]:
    """Return bm25s's lists by name. That file alone is run: importing bm25s starts JAX and Numba where they are."""
    return run_path(str(distribution("bm25s").locate_file("bm25s/stopwords.py")))


def _folded(text: str, analyzer: str) -> str:
    """Return the text in lower case and NFC; ı and i are two letters in Turkish, and İ is an i everywhere else."""
    if analyzer == "turkish":
        text = text.replace("I\N{COMBINING DOT ABOVE}", "i").replace("I", "ı")
    text = unicodedata.normalize("NFC", text.lower())
    return text.replace("i\N{COMBINING DOT ABOVE}", "i") if analyzer in LANGUAGES else text


def _words(text: str) -> list[str]:
    words: list[str] = _WORD.findall(text)
    return words


def _words_and_bigrams(text: str) -> list[str]:
    if text.isascii() or not _RUN.search(text):
        return _words(text)
    terms: list[str] = []
    for word in _WORD_OR_RUN.findall(text):
        if len(word) > 1 and _RUN.match(word):
            terms += map("".join, pairwise(word))
        else:
            terms.append(word)
    return terms


def _stemmed(words: list[str], language: str) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Return (the stems, the code of each word's stem; −1 for a stop word): the vocabulary is stemmed, not the text."""
    import Stemmer

    dropped = stop_words(language)
    codes: defaultdict[str, int] = defaultdict(lambda: len(codes))
    stems = Stemmer.Stemmer(language).stemWords(words)
    column = [-1 if word in dropped else codes[stem] for word, stem in zip(words, stems, strict=True)]
    return list(codes), np.array(column, np.int32)

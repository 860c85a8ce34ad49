"""Every tokenizer keeps what `ports.tokenizer` promises."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from tiffin.adapters.runtimes.tokens import TokenizerFile
from tiffin.errors import LoadFailed

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "tea", "bis", "##cuits", "and"]


def write(path: Path) -> Path:
    """A tokenizer of a few words; like many on the hub its file asks for a fixed length."""
    library = Library(WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    library.normalizer = BertNormalizer()
    library.pre_tokenizer = BertPreTokenizer()
    library.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    library.decoder = WordPieceDecoder()
    library.enable_padding(length=16)
    library.enable_truncation(4)
    library.save(str(path))
    return path


@pytest.fixture
def tokenizer(tmp_path: Path) -> TokenizerFile:
    return TokenizerFile(str(write(tmp_path / "tokenizer.json")))


def test_texts_are_read_whole_and_without_padding(tokenizer: TokenizerFile) -> None:
    [short, long] = tokenizer.encode(["tea", "Tea and biscuits, and more"])
    assert (short.ids, short.type_ids) == ([2, 4, 3], [0, 0, 0])
    assert long.ids == [2, 4, 7, 5, 6, 1, 7, 1, 3]


def test_pairs_tell_which_text_a_token_is_of(tokenizer: TokenizerFile) -> None:
    [first, second] = tokenizer.encode_pairs("tea", ["biscuits", "and"])
    assert (first.ids, first.type_ids) == ([2, 4, 3, 5, 6, 3], [0, 0, 0, 1, 1, 1])
    assert (second.ids, second.type_ids) == ([2, 4, 3, 7, 3], [0, 0, 0, 1, 1])


def test_special_tokens_are_optional_where_one_asks(tokenizer: TokenizerFile) -> None:
    assert tokenizer.ids("tea", special=True) == [2, 4, 3]
    assert tokenizer.ids("tea", special=False) == [4]
    assert tokenizer.text([2, 5, 6, 3]) == "[CLS] biscuits [SEP]"
    assert tokenizer.vocabulary == len(WORDS)


@pytest.mark.parametrize("content", ["", "{}", '{"version": "1.0"}'])
def test_another_file_is_refused_with_the_reason(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(LoadFailed, match="the tokenizer can't be read"):
        TokenizerFile(str(path))

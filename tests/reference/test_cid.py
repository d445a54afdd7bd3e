from types import ModuleType

import pytest

from gossiplog.errors import DecodeError

V0 = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKU4vT"
V1 = "bafyreidykglsfhoixmivffc5uwhcgshx4j465xwqntbmu43nb2dzqwfvae"


@pytest.mark.parametrize("text", [V0, V1, "bafkqaaa"])
def test_text_comes_back(core: ModuleType, text: str) -> None:
    link = core.CID.parse(text)
    assert str(link) == text
    assert core.CID(bytes(link)) == link
    assert hash(core.CID(bytes(link))) == hash(link)
    assert link != text


def test_base58_with_its_prefix(core: ModuleType) -> None:
    assert str(core.CID.parse("zdj7WkRPAX9o9nb9zPbXzwG7JEs78uyhwbUs8JSUayB98DWWY")).startswith("bafy")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "b",
            "z",
            "Q",
            "Qm",
            f"z{V0}",
            V1.upper(),
            f"{V1}=",
            f"{V1}a",
            V1[:-1],
            "bafkqaab",
            "uAVUAAA",
            "text",
            "é",
        ),
        *(f"b{'a' * 9000}", f"z{'z' * 9000}"),
    ],
    ids=lambda text: text[:20],
)
def test_other_text_is_no_link(core: ModuleType, text: str) -> None:
    with pytest.raises(DecodeError):
        core.CID.parse(text)


@pytest.mark.parametrize("data", ["", "01", "0171", "017112", "01711201", "0171120161ff", "02711200", "0201", "80"])
def test_other_bytes_are_no_link(core: ModuleType, data: str) -> None:
    with pytest.raises(DecodeError):
        core.CID(bytes.fromhex(data))

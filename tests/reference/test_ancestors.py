from types import ModuleType

import pytest

from gossiplog.errors import DecodeError
from gossiplog.reference import ancestors
from gossiplog.reference.ancestors import MAX_SHORTCUT, Ancestry, link_distances


def test_link_distances() -> None:
    assert [link_distances(clock) for clock in (1, 2, 3, 4, 6, 8, 12)] == [
        [],
        [1],
        [1],
        [1, 2],
        [1, 2],
        [1, 2, 4],
        [1, 2, 4],
    ]


def test_the_bytes_of_a_record(core: ModuleType) -> None:
    ancestry = Ancestry(lambda sequences: [b"" for _ in sequences])
    records = [ancestry.add(sequence, sequence, [sequence - 1] if sequence > 1 else []) for sequence in range(1, 9)]
    assert records[7] == bytes([8, 1, 1, 1, 2, 1, 4])
    assert core.link_record(8, records[7]) == (8, [[7], [6], [4]])
    assert core.frontier(8, 3, lambda wanted: [records[sequence - 1] for sequence in wanted]) == [3]


def test_a_parent_that_is_an_ancestor_of_another_is_left_out(core: ModuleType) -> None:
    ancestry = Ancestry(lambda sequences: [b"" for _ in sequences])
    ancestry.add(1, 1, [])
    ancestry.add(2, 2, [1])
    assert core.link_record(3, ancestry.add(3, 3, [1, 2])) == (3, [[2]])


def test_wide_frontiers_are_stored_once(core: ModuleType) -> None:
    ancestry = Ancestry(lambda sequences: [b"" for _ in sequences])
    width = MAX_SHORTCUT + 1
    records = [ancestry.add(sequence, 1, []) for sequence in range(1, width + 1)]
    records.append(ancestry.add(width + 1, 2, range(1, width + 1)))
    records.append(ancestry.add(width + 2, 3, [width + 1]))
    records.append(ancestry.add(width + 3, 4, [width + 2]))
    records.append(ancestry.add(width + 4, 5, [width + 3]))
    assert core.link_record(width + 3, records[width + 2])[1] == [[width + 2], [width + 1]]
    assert core.frontier(width + 4, 1, lambda wanted: [records[sequence - 1] for sequence in wanted]) == [
        *range(1, width + 1)
    ]


def test_a_message_above_many_heads_looks_at_these_and_no_further(core: ModuleType) -> None:
    # The roots that each message of the chain follows arrived before all of the chain.
    width, length = MAX_SHORTCUT - 1, 32
    ancestry = Ancestry(lambda sequences: [b"" for _ in sequences])
    records = [ancestry.add(sequence, 1, []) for sequence in range(1, width * length + 1)]
    for number in range(length):
        sequence = len(records) + 1
        parents = [*range(number * width + 1, (number + 1) * width + 1), *([sequence - 1] if number else [])]
        work = ancestry.work
        records.append(ancestry.add(sequence, 2 + number, parents))
        assert ancestry.work - work <= 2 * MAX_SHORTCUT
        # What is more than one step away is wider than is stored.
        _, links = core.link_record(sequence, records[-1])
        assert links == [parents, *[[] for _ in links[1:]]]


def test_a_search_that_looks_at_too_much_leaves_the_rest_out(core: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chains, each message on two fresh roots and on both last messages; frontiers stay what they are."""
    records: dict[int, list[bytes]] = {}
    for most in (2**14, 40):
        monkeypatch.setattr(ancestors, "MAX_LOOKS", most)
        ancestry = Ancestry(lambda sequences: [b"" for _ in sequences])
        records[most] = [ancestry.add(sequence, 1, []) for sequence in range(1, 65)]
        for number in range(32):
            sequence = 65 + number
            parents = [2 * number + 1, 2 * number + 2, *range(max(65, sequence - 2 + number % 2), sequence)]
            clock = 1 + max(core.link_record(each, records[most][each - 1])[0] for each in parents)
            records[most].append(ancestry.add(sequence, clock, parents))
    whole, cut = (
        [core.link_record(sequence, record) for sequence, record in enumerate(records[most], 1)] for most in records
    )
    assert whole != cut
    for (clock, links), (same, fewer) in zip(whole, cut, strict=True):
        if fewer and not fewer[0]:
            # All were, and the parents stand at the end.
            assert {*links[0]} <= {*fewer.pop()}
        kept = [each for each in fewer if each]
        assert (clock, links[: len(kept)]) == (same, kept)
        assert not any(fewer[len(kept) :])
    for clock in range(1, 18):
        found = [
            core.frontier(96, clock, lambda wanted, most=most: [records[most][each - 1] for each in wanted])
            for most in records
        ]
        assert found[0] == found[1]


@pytest.mark.slow
def test_parents_stand_in_place_of_the_frontiers_where_a_search_among_them_looks_at_too_much(
    core: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages on a chain and on an old one, an ancestor of it or not; frontiers stay what they are."""
    chain = range(4, 68)
    parents = {1: [], 2: [], 3: [2], **{each: [1 if each == 4 else each - 1] for each in chain}}
    parents |= {68: [1, 67], 69: [2, 67], 70: [68, 69]}
    records: dict[int, list[bytes]] = {}
    for most in (2**14, 4):
        monkeypatch.setattr(ancestors, "MAX_LOOKS", most)
        ancestry = Ancestry(lambda sequences: [b"" for _ in sequences])
        clocks: dict[int, int] = {}
        records[most] = []
        for sequence, named in parents.items():
            clocks[sequence] = 1 + max((clocks[each] for each in named), default=0)
            work = ancestry.work
            records[most].append(ancestry.add(sequence, clocks[sequence], named))
            assert ancestry.work - work <= 2 * (most + 2)
    whole, cut = ([core.link_record(each, records[most][each - 1])[1] for each in (68, 69)] for most in records)
    assert [links[0] for links in whole] == [[67], [2, 67]]
    assert cut == [[*[[] for _ in links], named] for links, named in zip(whole, ([1, 67], [2, 67]), strict=True)]
    for sequence, clock in clocks.items():
        for at in range(clock + 1):
            found = [
                core.frontier(sequence, at, lambda wanted, most=most: [records[most][each - 1] for each in wanted])
                for most in records
            ]
            assert found[0] == found[1]


@pytest.mark.parametrize(
    "record",
    [
        *("", "00", "0101", "02", "0200", "020103", "020100", "020102ff", "0280", "02020102", "03020201ff"),
        *("020000", "04000101", "0400010101", "02000103"),
    ],
)
def test_damaged_records_are_refused(core: ModuleType, record: str) -> None:
    with pytest.raises(DecodeError):
        core.link_record(3, bytes.fromhex(record))

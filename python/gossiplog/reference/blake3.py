"""BLAKE3, unkeyed, 32 bytes of output. Source: the BLAKE3 paper, section 2, https://github.com/BLAKE3-team/BLAKE3-specs."""

from typing import Final

_IV: Final = (
    0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
)  # fmt: skip
_BLOCK: Final = 64
_CHUNK: Final = 1024
_CHUNK_START, _CHUNK_END, _PARENT, _ROOT = 1, 2, 4, 8
_MASK: Final = 0xFFFFFFFF
_PERMUTATION: Final = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
# The four columns, then the four diagonals.
_QUARTERS: Final = (
    (0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
    (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14),
)  # fmt: skip

_Words = tuple[int, ...]


def _schedule() -> tuple[tuple[tuple[int, int, int, int, int, int], ...], ...]:
    """For each of the 7 rounds and 8 quarter-rounds: the four state words, and the two message words mixed in."""
    rounds = []
    order = tuple(range(16))
    for _ in range(7):
        rounds.append(tuple((*words, order[2 * i], order[2 * i + 1]) for i, words in enumerate(_QUARTERS)))
        order = tuple(order[index] for index in _PERMUTATION)
    return tuple(rounds)


_ROUNDS: Final = _schedule()


def _compress(chaining: _Words, block: bytes, counter: int, flags: int) -> _Words:
    """Section 2.2: the first eight words of the output, all that a hash of 32 bytes needs."""
    padded = block.ljust(_BLOCK, b"\0")
    message = [int.from_bytes(padded[i : i + 4], "little") for i in range(0, _BLOCK, 4)]
    state = [*chaining, *_IV[:4], counter & _MASK, counter >> 32, len(block), flags]
    for quarters in _ROUNDS:
        for ia, ib, ic, id_, ix, iy in quarters:
            a, b, c, d = state[ia], state[ib], state[ic], state[id_]
            a = (a + b + message[ix]) & _MASK
            d ^= a
            d = (d >> 16 | d << 16) & _MASK
            c = (c + d) & _MASK
            b ^= c
            b = (b >> 12 | b << 20) & _MASK
            a = (a + b + message[iy]) & _MASK
            d ^= a
            d = (d >> 8 | d << 24) & _MASK
            c = (c + d) & _MASK
            b ^= c
            b = (b >> 7 | b << 25) & _MASK
            state[ia], state[ib], state[ic], state[id_] = a, b, c, d
    return tuple(state[i] ^ state[i + 8] for i in range(8))


def _bytes(words: _Words) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def _chunk(data: bytes, counter: int, flags: int) -> _Words:
    """Section 2.4: the chaining value of a chunk; `flags` go to its last block."""
    chaining: _Words = _IV
    last = max(len(data) - 1, 0) // _BLOCK
    for index in range(last + 1):
        block = data[index * _BLOCK : (index + 1) * _BLOCK]
        start = _CHUNK_START if index == 0 else 0
        end = _CHUNK_END | flags if index == last else 0
        chaining = _compress(chaining, block, counter, start | end)
    return chaining


def blake3(data: bytes) -> bytes:
    """Return the hash of `data`, 32 bytes."""
    if len(data) <= _CHUNK:
        return _bytes(_chunk(data, 0, _ROOT))
    # Section 5.1.2: finished subtrees, larger ones first. A subtree is merged only once more input follows it, for the
    # last merge of all is the root.
    subtrees: list[_Words] = []
    count = (len(data) + _CHUNK - 1) // _CHUNK
    for counter in range(count):
        node = _chunk(data[counter * _CHUNK : (counter + 1) * _CHUNK], counter, 0)
        finished = counter + 1
        while finished % 2 == 0 and finished < count and counter + 1 < count:
            node = _compress(_IV, _bytes(subtrees.pop() + node), 0, _PARENT)
            finished //= 2
        subtrees.append(node)
    node = subtrees.pop()
    while len(subtrees) > 1:
        node = _compress(_IV, _bytes(subtrees.pop() + node), 0, _PARENT)
    return _bytes(_compress(_IV, _bytes(subtrees.pop() + node), 0, _PARENT | _ROOT))

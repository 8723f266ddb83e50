"""Where a text repeats itself, as arrays.  Pure: no torch.

Owns the one definition of "repeats" and "loops" that training, measurement and documentation share.
"""

import numpy as np
import numpy.typing as npt

from demo.training.settings import REPEAT_WINDOW_TOKENS

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so a window's hash changes with each of its tokens


def repeated(texts: npt.NDArray[np.int64], window: int = REPEAT_WINDOW_TOKENS) -> npt.NDArray[np.bool_]:
    """True where the `window` tokens that end at a position occurred before in the same text.

    texts int64 [rows, positions] -> bool [rows, positions]; the first window - 1 positions are never true.
    """
    rows, positions = texts.shape
    result = np.zeros((rows, positions), dtype=np.bool_)
    if positions < window:
        return result
    count = positions - window + 1
    hashes = np.zeros((rows, count), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(window):
            token = texts[:, offset : offset + count].astype(np.uint64)
            hashes = (hashes ^ (token + np.uint64(1))) * _MULTIPLIER
            hashes ^= hashes >> np.uint64(29)
    order = np.argsort(hashes, axis=1, kind="stable")  # equal windows side by side, the earliest first
    ordered = np.take_along_axis(hashes, order, axis=1)
    again = np.zeros((rows, count), dtype=np.bool_)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    np.put_along_axis(result[:, window - 1 :], order, again, axis=1)
    return result


def loop_starts(texts: npt.NDArray[np.int64], first: int) -> npt.NDArray[np.int64]:
    """The position from which each text only repeats itself to its end, at least `first`; its length if none.

    A looping tail is what stands from there on.  texts int64 [rows, positions] -> int64 [rows].
    """
    fresh = ~repeated(texts)
    positions = texts.shape[1]
    last_fresh = positions - 1 - np.argmax(fresh[:, ::-1], axis=1)
    return np.maximum(last_fresh + 1, first)

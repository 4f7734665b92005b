"""The number of responses that a worker writes at once."""

from __future__ import annotations

_WORTHWHILE = 1.05
_SMOOTHING = 0.3
_LOOK_AGAIN = 50


class BatchSize:
    """Doubles while that makes tokens come faster, and settles on the smallest size that is nearly as fast.

    A larger batch uses an engine better, until its memory bandwidth, its scheduler or a server's rate limit
    is used up. Beyond that point, it only makes everybody wait longer and keeps work from other workers.
    Where that point lies depends on the model, the machine and the prompts, so it is measured. Sizes that
    were no faster are tried again after a while.

    Parameters
    ----------
    start, most : int
        The first size, and the largest.
    """

    def __init__(self, start: int, most: int) -> None:
        self._sizes = [min(start, most)]
        while self._sizes[-1] < most:
            self._sizes.append(min(2 * self._sizes[-1], most))
        self._rates: dict[int, float] = {}
        self._place = 0
        self._rounds = 0
        self.tokens_per_second: float | None = None

    @property
    def now(self) -> int:
        """The size to use."""
        return self._sizes[self._place]

    def measured(self, *, tokens: int, seconds: float) -> None:
        """Report the speed with that many in progress, measured while more were waiting."""
        if tokens <= 0 or seconds <= 0:
            return
        before = self._rates.get(self._place)
        rate = tokens / seconds
        self._rates[self._place] = rate if before is None else before + _SMOOTHING * (rate - before)
        self.tokens_per_second = self._rates[self._place]
        self._rounds += 1
        if self._rounds % _LOOK_AGAIN == 0:
            self._rates = {self._place: self._rates[self._place]}
        self._place = self._choose()

    def _choose(self) -> int:
        larger = self._place + 1
        if larger < len(self._sizes) and larger not in self._rates:
            smaller = self._rates.get(self._place - 1, 0.0)
            if self._rates[self._place] >= _WORTHWHILE * smaller:
                return larger
        best = max(self._rates.values())
        return min(place for place, rate in self._rates.items() if rate * _WORTHWHILE >= best)

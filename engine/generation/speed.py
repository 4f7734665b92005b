"""The speed at which a worker's backend writes."""

# The weight of the newest measurement.
_WEIGHT = 0.3


class Speed:
    """A running mean of tokens per second, measured while more responses were waiting."""

    def __init__(self) -> None:
        self.tokens_per_second: float | None = None

    def measured(self, *, tokens: int, seconds: float) -> None:
        """Add a measurement."""
        if tokens > 0 and seconds > 0:
            rate = tokens / seconds
            before = self.tokens_per_second
            self.tokens_per_second = rate if before is None else before + _WEIGHT * (rate - before)

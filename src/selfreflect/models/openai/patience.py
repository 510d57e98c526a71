"""How long to wait before asking a server again, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with jitter. All times in seconds."""

    tries: int = 10
    first: float = 0.5
    longest: float = 60.0
    longest_asked: float = 300.0
    """The longest wait that a server may ask for; one that asks for more is not waited for."""

    def wait(self, tries: int, asked: float | None, chance: float) -> float | None:
        """Before the next try, after ``tries`` that failed; None to give up.

        ``asked`` is what the server's Retry-After says, ``chance`` in [0, 1) a random number. Between half
        and all of the doubled wait is drawn, so that requests refused together do not come back together;
        never less than was asked for.
        """
        if tries >= self.tries or (asked is not None and asked > self.longest_asked):
            return None
        wait = min(self.longest, self.first * 2.0 ** min(tries - 1, 60))
        return (asked or 0.0) + wait * (0.5 + 0.5 * chance)


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """Seconds that a Retry-After header asks to wait (RFC 9110: seconds or an HTTP date); None without a
    header that can be read.

    More seconds than a float holds are infinitely many: such a server is not waited for.
    """
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (date - (now or datetime.now(UTC))).total_seconds()
    return None if math.isnan(seconds) else max(0.0, seconds)

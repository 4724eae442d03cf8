"""What tool definitions cost a model, in tokens, as an estimate.

A token is taken for four bytes of compact JSON, which is what tokenizers of large models come
to on English and JSON, about. Others count more (WordPiece 1.4 times as much); the share that is
saved hardly depends on it, since both sides are counted alike.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

BYTES_PER_TOKEN: Final = 4


def compact(value: Any) -> str:
    """JSON without spaces, in the characters themselves."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tokens_of(value: Any) -> int:
    """How many tokens a JSON value takes, about."""
    return -(-len(compact(value).encode("utf-8", "replace")) // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Savings:
    """What all tools would have cost, and what the returned ones cost."""

    baseline_tokens: int
    returned_tokens: int

    @property
    def savings_percent(self) -> float:
        """The saved share in percent; below 0 where the answer is longer than all tools."""
        if not self.baseline_tokens:
            return 0.0
        saved = self.baseline_tokens - self.returned_tokens
        return round(100 * saved / self.baseline_tokens, 1)

    def as_json(self) -> dict[str, Any]:
        """As in the answer of find_tool."""
        return {
            "baseline_tokens": self.baseline_tokens,
            "returned_tokens": self.returned_tokens,
            "savings_percent": self.savings_percent,
        }

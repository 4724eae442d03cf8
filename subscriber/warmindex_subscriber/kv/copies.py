"""Medium, locality, group -> one copy of a block, and the tier that the copy is in.

An engine may have a block several times: in the device's memory and offloaded, once per
attention group. Each such place is a copy, one bit of a block's mask; the block is held in
a tier while a copy in that tier is left. A removal names its copies in the same words:

    medium     as is, case aside; none means the device
    locality   none means any, on a removal; local, on a store
    group      none means any, on a removal; a removal with a group also takes the copies
               that were stored without one
"""

from __future__ import annotations

from typing import Final, NamedTuple

from warmindex.event import Tier

# Mediums times groups of a real engine are a dozen or two. The limit keeps a block's
# record small whatever an engine sends.
COPIES_MAX: Final = 128

_TIERS: Final = {
    "": Tier.DEVICE,
    "GPU": Tier.DEVICE,
    "CPU": Tier.HOST,
    "CPU_PINNED": Tier.HOST,
    "DISK": Tier.HOST,
    "FS": Tier.HOST,
    "STORAGE": Tier.REMOTE,
    "OBJ": Tier.REMOTE,
    "EXTERNAL": Tier.REMOTE,
}
_DEVICE: Final = "GPU"
_REMOTE: Final = "REMOTE"


class Copy(NamedTuple):
    """One place of a block: its bit, its tier, and whether its medium is one that is known."""

    bit: int
    tier: Tier
    known: bool


class _Place(NamedTuple):
    medium: str
    remote: bool
    group: int | None


class Copies:
    """The places that one engine has shown, numbered as they come."""

    def __init__(self) -> None:
        self._copies: dict[_Place, Copy] = {}
        # By the words as they came: a few strings that repeat in every event.
        self._stored: dict[tuple[str | None, str | None, int | None], Copy] = {}
        self._removed: dict[tuple[str | None, str | None, int | None], int] = {}
        self.tier_masks: dict[Tier, int] = {}

    def stored(self, medium: str | None, locality: str | None, group: int | None) -> Copy | None:
        """The copy that a store names; None where there are more than `COPIES_MAX`."""
        words = (medium, locality, group)
        copy = self._stored.get(words)
        if copy is None:
            copy = self._add(_Place(_fold(medium), _is_remote(locality), group))
            if copy is not None and len(self._stored) < COPIES_MAX:
                self._stored[words] = copy
        return copy

    def removed(self, medium: str | None, locality: str | None, group: int | None) -> int:
        """The mask of all copies that a removal names; 0 for none that was ever stored."""
        words = (medium, locality, group)
        mask = self._removed.get(words)
        if mask is None:
            mask = self._matching(_fold(medium), locality, group)
            if len(self._removed) < COPIES_MAX:
                self._removed[words] = mask
        return mask

    def _add(self, place: _Place) -> Copy | None:
        copy = self._copies.get(place)
        if copy is not None:
            return copy
        if len(self._copies) == COPIES_MAX:
            return None
        tier = _TIERS.get(place.medium)
        known = tier is not None
        if tier is None or place.remote:
            tier = Tier.REMOTE
        copy = Copy(1 << len(self._copies), tier, known)
        self._copies[place] = copy
        self.tier_masks[tier] = self.tier_masks.get(tier, 0) | copy.bit
        self._removed.clear()
        return copy

    def _matching(self, medium: str, locality: str | None, group: int | None) -> int:
        mask = 0
        for place, copy in self._copies.items():
            same_medium = place.medium == medium
            same_locality = locality is None or place.remote == _is_remote(locality)
            same_group = group is None or place.group is None or place.group == group
            if same_medium and same_locality and same_group:
                mask |= copy.bit
        return mask


def _fold(medium: str | None) -> str:
    return medium.upper() if medium else _DEVICE


def _is_remote(locality: str | None) -> bool:
    return locality is not None and locality.upper() == _REMOTE

"""A large value as the key of a cache, by what it is and not by what it holds."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class ComparedByIdentity(Generic[T]):
    """Equal only to another of the same object, which it keeps alive as long as it is a key."""

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComparedByIdentity) and other.value is self.value

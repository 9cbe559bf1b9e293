"""The pages of a cache that several texts share: who has which."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Pages", "Seat"]


@dataclass
class Seat:
    """A text's place in the cache: its slot, its pages in order, and the tokens in them."""

    slot: int
    pages: list[int] = field(default_factory=list)
    length: int = 0


class Pages:
    """`count` pages of `length` positions; a page has as many owners as texts begin with it."""

    def __init__(self, count: int, length: int) -> None:
        self.length = length
        self.owners = [0] * count
        self.free = list(range(count))[::-1]

    def needed(self, tokens: int) -> int:
        """How many pages so many tokens take."""
        return -(-tokens // self.length)

    def take(self) -> int:
        """A page that nobody has; there must be one."""
        page = self.free.pop()
        self.owners[page] = 1
        return page

    def share(self, pages: list[int]) -> list[int]:
        """The same pages for one more owner."""
        for page in pages:
            self.owners[page] += 1
        return list(pages)

    def give_back(self, pages: list[int]) -> None:
        """One owner less for each."""
        for page in pages:
            self.owners[page] -= 1
            if not self.owners[page]:
                self.free.append(page)

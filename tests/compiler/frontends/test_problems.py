"""Problems of a program, told once per cause."""

from __future__ import annotations

from ingot.compiler.frontends.problems import Problem, list_problems


def test_problems_of_one_cause_are_told_once_with_their_layers() -> None:
    same = [Problem(f"layer 'l{n}': no", "no", f"l{n}") for n in range(9)]
    other = Problem("layer 'x': never", "never", "x")
    assert list_problems([*same[:2], other, *same[2:]]) == [
        "layer 'l0': no (also in 8 more places: 'l1', 'l2', 'l3', 'l4', 'l5', ...)",
        "layer 'x': never",
    ]


def test_problems_without_a_cause_stand_alone() -> None:
    assert list_problems([Problem("a"), Problem("b"), Problem("c")]) == ["a", "b", "c"]
    assert list_problems([]) == []

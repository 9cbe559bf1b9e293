"""A process that uses the cache in every way for some seconds, as others do at the same time.

`python -m tests.support.cache_users FOLDER SECONDS SEED` prints what it did, each at least once.
"""

from __future__ import annotations

import random
import sys
import time
from hashlib import sha256
from itertools import count

import numpy as np

import ingot
from ingot.hal.file_cache import default_cache
from tests.support.devices import best_variant

WIDTH = 2048  # of weights that are mapped: some pages
SOURCE = """
module {{}} {{ func @main(%x: f32[{0}] "x") -> (f32[{0}] "y") {{
  %y = add(%x, %x) : f32[{0}]
  return(%y) }} }}
"""
MAPPED = f"""
module {{}} {{ func @main(%x: f32[{WIDTH}] "x") -> (f32[{WIDTH}] "y") {{
  %w = parameter() {{scope="", key="w", dtype=f32, shape=[{WIDTH}]}} : f32[{WIDTH}]
  %y = add(%x, %w) : f32[{WIDTH}]
  return(%y) }} }}
"""


def compile_one(draw: random.Random) -> None:
    length = draw.randrange(1, 20)
    module = ingot.compile(SOURCE.format(length), variants=[best_variant()])
    assert ingot.load(module)(np.ones(length, np.float32)).numpy().tolist() == [2] * length


def map_one(draw: random.Random, module: ingot.Module) -> None:
    number = draw.randrange(4)
    weights = {"w": np.full(WIDTH, number, np.float32)}
    model = ingot.load(module, parameters=weights, share_weights=True)
    assert (model(np.ones(WIDTH, np.float32)).numpy() == 1 + number).all()


def keep_one(draw: random.Random) -> None:
    cache, key = default_cache(), sha256(bytes([draw.randrange(4)])).hexdigest()
    content = key.encode() * draw.randrange(1, 1000)
    if draw.random() < 0.5:
        cache.write(key, content)
        found = cache.read(key)
    else:
        cache.write_file(key, content)
        path = cache.file(key)
        try:
            found = None if path is None else path.read_bytes()
        except FileNotFoundError:  # another process trims
            found = None
    assert found is None or found == key.encode() * (len(found) // len(key))


def main(folder: str, seconds: str, seed: str) -> None:
    draw, end = random.Random(int(seed)), time.monotonic() + float(seconds)
    mapped = ingot.compile(MAPPED, variants=[best_variant()])
    uses = {
        "compile": lambda: compile_one(draw),
        "map": lambda: map_one(draw, mapped),
        "keep": lambda: keep_one(draw),
        "trim": lambda: default_cache().trim(draw.choice((0, 20_000, 100_000))),
    }
    names = [*uses, "map", "map", "keep"]
    for turn in count():
        if turn >= len(uses) and time.monotonic() > end:
            break
        uses[list(uses)[turn] if turn < len(uses) else draw.choice(names)]()
    print(*uses)


if __name__ == "__main__":
    main(*sys.argv[1:])

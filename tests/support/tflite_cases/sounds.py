"""Cases of the custom ops of models of speech."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_cases.table import I32, F, case, floats

for _squared in (False, True):
    case(
        "AudioSpectrogram", [floats(500, 2)], [(F, (2, 9, 33))], "", window_size=50, stride=55,
        magnitude_squared=_squared, tolerance=1e-4,
    )  # fmt: skip
for _low, _high in ((20, 4000), (125, 7800)):
    case(
        "Mfcc", [floats(1, 5, 257, low=0, high=9), np.array([16000], I32)], [(F, (1, 5, 13))], "",
        (1,), upper_frequency_limit=_high, lower_frequency_limit=_low,
        filterbank_channel_count=40, dct_coefficient_count=13, tolerance=1e-4,
    )  # fmt: skip

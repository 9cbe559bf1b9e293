"""Spectra, and what models of speech make of sounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ingot.compiler.frontends.complex_numbers import join
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.fourier import fitted, transform
from ingot.compiler.frontends.tflite.flexbuffer import count_in, read_options
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.ir import Value, dims

__all__: list[str] = []


@lowering("RFFT2D", raw=True)
def rfft2d(c: Context, x: Value, lengths: Value) -> Value:
    """Over the last two axes, cut or padded to these lengths."""
    rank = type_of(x).rank
    sizes = c.known(lengths, "length")
    for axis, size in zip((rank - 2, rank - 1), sizes, strict=True):
        if size < 1:
            raise UnsupportedNode(f"it transforms {size} elements: fix the lengths")
        x = fitted(c, x, axis, size)
    half = sizes[1] // 2 + 1
    parts = [c.sliced(each, rank - 1, 0, half) for each in transform(c.builder, (x, None))]
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    turned = [c.transpose(each, swapped) for each in parts]
    real, imaginary = transform(c.builder, (turned[0], turned[1]))
    return join(c.builder, (c.transpose(real, swapped), c.transpose(imaginary, swapped)))


def _power(c: Context, *parts: Value) -> Value:
    return c.op("add", *(c.op("mul", each, each) for each in parts))


@lowering("CUSTOM 'AudioSpectrogram'")
def audio_spectrogram(c: Context, x: Value) -> Value:
    """[samples, channels] -> [channels, frames, 1 + half of the window, which is filled up to a
    power of two]."""
    options = read_options(c.operator.custom)
    size, step = count_in(options, "window_size", 2, 1 << 20), count_in(options, "stride")
    frames = dims.floordiv(shape_of(x)[0] - size, step) + 1
    first = c.places((frames, size), 0)
    first = c.op("mul", first, step)
    places = c.op("add", first, c.places((frames, size), 1))
    sound = c.op("take", c.transpose(x, (1, 0)), places, axis=1, mode="clamp")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    sound = c.op("mul", sound, c.broadcast_to(c.constant(window, "f32"), shape_of(sound)))
    length = 1 << (size - 1).bit_length()
    pair = transform(c.builder, (fitted(c, sound, 2, length), None))
    power = _power(c, *(c.sliced(each, 2, 0, length // 2 + 1) for each in pair))
    return power if options.get("magnitude_squared") else c.op("sqrt", power)


@lowering("CUSTOM 'Mfcc'")
def mel_cepstrum(c: Context, spectrum: Value, rate: Value) -> Value:
    """Powers [channels, frames, n] -> coefficients [channels, frames, dct_coefficient_count]."""
    options = read_options(c.operator.custom)
    channels = count_in(options, "filterbank_channel_count")
    count = count_in(options, "dct_coefficient_count", 1, channels)
    (bins,), (hertz,) = shape_of(spectrum)[2:], c.known(rate, "sample rate")
    if not isinstance(bins, int) or bins < 2 or not 0 < channels * bins < 1 << 24:
        raise UnsupportedNode(f"it has {channels} channels of {bins} frequencies: fix the model")
    limits = options["lower_frequency_limit"], options["upper_frequency_limit"]
    if not (0 <= limits[0] < limits[1] < math.inf and hertz > 0):
        raise UnsupportedNode(f"its limits {limits} of {hertz} hertz do not rise: fix the model")
    weights = _mel_weights(bins, hertz, channels, limits)
    bands = c.dot(c.op("sqrt", spectrum), c.constant(weights, "f32"), (2, 0))
    loud = c.op("log", c.op("max", bands, 1e-12))
    angles = np.outer(np.arange(channels) + 0.5, np.arange(count)) * np.pi / channels
    return c.dot(loud, c.constant(np.sqrt(2 / channels) * np.cos(angles), "f32"), (2, 0))


def _mel_weights(
    bins: int, rate: int, channels: int, limits: tuple[float, float]
) -> np.ndarray[Any, Any]:
    """[bins, channels]: triangles over the mel scale, the middle of each where its neighbours end;
    frequencies outside of the limits count nowhere."""
    low, high = (1127 * np.log1p(limit / 700) for limit in limits)
    centers = low + (high - low) / (channels + 1) * np.arange(channels + 2)
    spacing = 0.5 * rate / (bins - 1)
    mels = 1127 * np.log1p(np.arange(bins) * spacing / 700)
    place = np.arange(bins)
    inside = (place >= int(1.5 + limits[0] / spacing)) & (place <= int(limits[1] / spacing))
    band = np.clip(
        np.searchsorted(centers[1:], mels), 0, channels
    )  # centers between band, band + 1
    falling = (centers[band + 1] - mels) / (centers[band + 1] - centers[band])
    weights = np.zeros((bins, channels + 2))
    weights[place, band] = falling
    weights[place, band + 1] = 1 - falling
    return weights[:, 1:-1] * inside[:, None]

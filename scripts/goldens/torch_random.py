"""Draws the numbers that PyTorch's CPU generator draws from a seed (Mersenne twister; Box and Muller's method in float32).
Checkpoints of random weights thus need no PyTorch and no copy of the weights. A few of PyTorch's roundings are not followed, so a
number may differ in its last bit. Only additions, multiplications, divisions and roots are used, which give the same bits on
every machine."""
import math

import numpy as np

HALF_PI = math.pi / 2


def log(x):
    """Returns the logarithm of float64 in (0, 1], by the series of 2 artanh((m - 1) / (m + 1))."""
    m, e = np.frexp(x)
    small = m < math.sqrt(0.5)
    m, e = np.where(small, 2 * m, m), e - small
    s = (m - 1) / (m + 1)
    z, total = s * s, np.zeros_like(s)
    for k in range(13, -1, -1):
        total = total * z + 1 / (2 * k + 1)
    return 2 * s * total + e * math.log(2)


def series(z, first):
    """Returns 1 - z / (a b) + z^2 / (a b c d) - ..., with factors that count from `first` on."""
    total = np.ones_like(z)
    for k in range(8, -1, -1):
        total = 1 - z / ((first + 2 * k) * (first + 2 * k + 1)) * total
    return total


def sine_and_cosine(x):
    """Returns sine and cosine of float64 from 0 to 2 pi, by Taylor's series in the nearest quarter."""
    quarter = np.rint(x / HALF_PI)
    r = x - quarter * HALF_PI
    sine, cosine, q = r * series(r * r, 2), series(r * r, 1), quarter.astype(np.int64) % 4
    return np.choose(q, (sine, cosine, -sine, -cosine)), np.choose(q, (cosine, -sine, -cosine, sine))


class Random:
    def __init__(self, seed):
        self.words = np.random.RandomState(seed)
        self.kept = None  # second number of the last pair that `single` drew; None when it was used

    def uniform(self, n):
        """Returns the numbers of torch.rand(n), which have 24 bits each."""
        bits = self.words.randint(0, 1 << 32, size=n, dtype=np.uint32) & 0xFFFFFF
        return bits.astype(np.float32) * np.float32(2.0**-24)

    def uniform_double(self):
        high, low = (int(w) for w in self.words.randint(0, 1 << 32, size=2, dtype=np.uint32))
        return ((high << 32 | low) & ((1 << 53) - 1)) * 2.0**-53

    @staticmethod
    def pairs(u):
        """Converts [k, 16] uniform numbers to as many normal numbers, from eight radii and eight angles."""
        radius = np.sqrt(np.float32(-2) * log((np.float32(1) - u[:, :8]).astype(np.float64)).astype(np.float32))
        angle = np.float32(2 * math.pi) * u[:, 8:]
        sine, cosine = sine_and_cosine(angle.astype(np.float64))
        return np.concatenate([radius * cosine.astype(np.float32), radius * sine.astype(np.float32)], axis=1)

    def single(self):
        if self.kept is None:
            u, v = self.uniform_double(), self.uniform_double()
            radius = np.sqrt(-2 * log(np.float64(1 - v)))
            sine, cosine = sine_and_cosine(np.float64(2 * math.pi * u))
            self.kept = radius * sine
            return radius * cosine
        kept, self.kept = self.kept, None
        return kept

    def normal(self, shape):
        """Returns the numbers of torch.randn(shape). Fewer than 16 numbers are drawn one by one. When 16 does not divide the number,
        the last 16 are drawn again."""
        n = math.prod(shape)
        if n < 16:
            return np.array([self.single() for _ in range(n)]).astype(np.float32).reshape(shape)
        out = self.uniform(n)
        whole = n // 16 * 16
        out[:whole] = self.pairs(out[:whole].reshape(-1, 16)).reshape(-1)
        if n % 16:
            out[n - 16:] = self.pairs(self.uniform(16).reshape(1, 16)).reshape(-1)
        return out.reshape(shape)

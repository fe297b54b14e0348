"""Mean over windows side by side; channels last, linearised; what does not fill a window is dropped."""

from mdh_lift import mdh


@mdh("noalias(img, out)")
def avg_pool(
    h: int, w: "int32", c: "int32", k: "int32", oh: "int32", ow: "int32", img: "float64[:]", out: "float64[:]"
):
    for y in range(oh):
        for x in range(ow):
            for ch in range(c):
                sum = 0.0
                for dy in range(k):
                    for dx in range(k):
                        sum += img[((y * k + dy) * w + x * k + dx) * c + ch]
                out[(y * ow + x) * c + ch] = sum / (k * k)

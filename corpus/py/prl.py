"""prl.c: probabilistic record linkage, with a combine operator of the user's on records."""

import numpy as np

from mdh_lift import cc, combine_ops, mdh, pw

record = np.dtype(
    [
        ("id", np.int32),
        ("first_name", np.int32), ("last_name", np.int32), ("birth_name", np.int32),
        ("birth_day", np.int32), ("birth_month", np.int32), ("birth_year", np.int32),
        ("sex", np.int32), ("nationality", np.int32),
        ("street", np.int32), ("house", np.int32), ("zip", np.int32), ("city", np.int32), ("state", np.int32),
        ("country", np.int32),
    ],
    align=True,
)
match = np.dtype(
    [("id_new", np.int32), ("id_old", np.int32), ("weight", np.float64), ("status", np.int32)], align=True
)

LOWER = 15.0
UPPER = 45.0


def blocked(a: "record", b: "record") -> "int32":
    if a["last_name"] == b["last_name"] and a["first_name"] == b["first_name"]:
        return 1
    if a["last_name"] == b["last_name"] and a["birth_year"] == b["birth_year"]:
        return 2
    if a["birth_name"] == b["birth_name"] and a["birth_day"] == b["birth_day"]:
        return 3
    if (a["birth_day"] == b["birth_day"] and a["birth_month"] == b["birth_month"]
            and a["birth_year"] == b["birth_year"]):
        return 4
    if a["zip"] == b["zip"] and a["street"] == b["street"]:
        return 5
    if a["first_name"] == b["first_name"] and a["zip"] == b["zip"]:
        return 6
    if a["street"] == b["street"] and a["house"] == b["house"] and a["sex"] == b["sex"]:
        return 7
    return 0


def wght(a: "record", b: "record") -> "match":
    m = np.empty((), match)[()]

    m["id_new"] = a["id"]
    m["id_old"] = b["id"]
    m["weight"] = 0.0
    m["status"] = 0
    if blocked(a, b) == 0:
        return m

    if a["first_name"] == b["first_name"]:
        m["weight"] += 6.125
    else:
        m["weight"] -= 2.25
    if a["last_name"] == b["last_name"]:
        m["weight"] += 7.5
    else:
        m["weight"] -= 3.125
    if a["birth_name"] == b["birth_name"]:
        m["weight"] += 7.25
    else:
        m["weight"] -= 1.5
    if a["birth_day"] == b["birth_day"]:
        m["weight"] += 3.375
    else:
        m["weight"] -= 2.0
    if a["birth_month"] == b["birth_month"]:
        m["weight"] += 2.5
    else:
        m["weight"] -= 1.75
    if a["birth_year"] == b["birth_year"]:
        m["weight"] += 4.25
    else:
        m["weight"] -= 2.625
    if a["sex"] == b["sex"]:
        m["weight"] += 0.625
    else:
        m["weight"] -= 3.5
    if a["nationality"] == b["nationality"]:
        m["weight"] += 1.125
    else:
        m["weight"] -= 1.25
    if a["street"] == b["street"]:
        m["weight"] += 6.0
    else:
        m["weight"] -= 0.875
    if a["house"] == b["house"]:
        m["weight"] += 4.5
    else:
        m["weight"] -= 0.625
    if a["zip"] == b["zip"]:
        m["weight"] += 5.375
    else:
        m["weight"] -= 0.75
    if a["city"] == b["city"]:
        m["weight"] += 3.75
    else:
        m["weight"] -= 0.5
    if a["state"] == b["state"]:
        m["weight"] += 1.875
    else:
        m["weight"] -= 1.125
    if a["country"] == b["country"]:
        m["weight"] += 0.5
    else:
        m["weight"] -= 2.125

    if m["weight"] >= UPPER:
        m["status"] = 2
    elif m["weight"] >= LOWER:
        m["status"] = 1
    return m


def max_PRL(x: "match", y: "match") -> "match":
    if x["weight"] > y["weight"]:
        return x
    if x["weight"] < y["weight"]:
        return y
    return x if x["id_old"] <= y["id_old"] else y


@mdh(combine_ops(cc, pw(max_PRL)))
def link_records(M: "match[:]", N: "record[:]", E: "record[:]", n_new: "int32", n_old: "int32"):
    for i in range(n_new):
        best = np.void((0, -1, -1.0e30, 0), match)  # worse than every comparison
        for j in range(n_old):
            best = max_PRL(best, wght(N[i], E[j]))
        M[i] = best

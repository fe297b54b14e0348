/* Probabilistic record linkage: for every new record the best match among the existing ones.
   The scalar function is a guarded sum of attribute weights behind seven blocking stages; the combine operator is
   the user's, on a struct, with ties broken by the id so that it commutes. */
#include <stdio.h>
#include <stdlib.h>

#ifndef NEW
#define NEW 127
#endif
#ifndef OLD
#define OLD 1009
#endif

/* Attributes are codes (of names, places, numbers); 0 means unknown. */
typedef struct {
    int id;
    int first_name, last_name, birth_name;
    int birth_day, birth_month, birth_year;
    int sex, nationality;
    int street, house, zip, city, state, country;
} record;

typedef struct {
    int id_new, id_old;
    double weight;
    int status;             /* 0 no match, 1 possible match, 2 match */
} match;

#define LOWER 15.0
#define UPPER 45.0

/* May the two records be the same person at all? Any of seven keys is enough; 0 if none agrees. */
static int blocked(record a, record b)
{
    if (a.last_name == b.last_name && a.first_name == b.first_name)
        return 1;
    if (a.last_name == b.last_name && a.birth_year == b.birth_year)
        return 2;
    if (a.birth_name == b.birth_name && a.birth_day == b.birth_day)
        return 3;
    if (a.birth_day == b.birth_day && a.birth_month == b.birth_month && a.birth_year == b.birth_year)
        return 4;
    if (a.zip == b.zip && a.street == b.street)
        return 5;
    if (a.first_name == b.first_name && a.zip == b.zip)
        return 6;
    if (a.street == b.street && a.house == b.house && a.sex == b.sex)
        return 7;
    return 0;
}

/* Log-likelihood weights, rounded to multiples of 1/8 so that their sums are exact. */
match wght(record a, record b)
{
    match m;

    m.id_new = a.id;
    m.id_old = b.id;
    m.weight = 0.0;
    m.status = 0;
    if (blocked(a, b) == 0)
        return m;

    if (a.first_name == b.first_name) m.weight += 6.125; else m.weight -= 2.25;
    if (a.last_name == b.last_name) m.weight += 7.5; else m.weight -= 3.125;
    if (a.birth_name == b.birth_name) m.weight += 7.25; else m.weight -= 1.5;
    if (a.birth_day == b.birth_day) m.weight += 3.375; else m.weight -= 2.0;
    if (a.birth_month == b.birth_month) m.weight += 2.5; else m.weight -= 1.75;
    if (a.birth_year == b.birth_year) m.weight += 4.25; else m.weight -= 2.625;
    if (a.sex == b.sex) m.weight += 0.625; else m.weight -= 3.5;
    if (a.nationality == b.nationality) m.weight += 1.125; else m.weight -= 1.25;
    if (a.street == b.street) m.weight += 6.0; else m.weight -= 0.875;
    if (a.house == b.house) m.weight += 4.5; else m.weight -= 0.625;
    if (a.zip == b.zip) m.weight += 5.375; else m.weight -= 0.75;
    if (a.city == b.city) m.weight += 3.75; else m.weight -= 0.5;
    if (a.state == b.state) m.weight += 1.875; else m.weight -= 1.125;
    if (a.country == b.country) m.weight += 0.5; else m.weight -= 2.125;

    if (m.weight >= UPPER)
        m.status = 2;
    else if (m.weight >= LOWER)
        m.status = 1;
    return m;
}

match max_PRL(match x, match y)
{
    if (x.weight > y.weight)
        return x;
    if (x.weight < y.weight)
        return y;
    return x.id_old <= y.id_old ? x : y;
}

void link_records(match *M, const record *N, const record *E, int n_new, int n_old)
{
#pragma mdh combine_ops(cc, pw(max_PRL))
    for (int i = 0; i < n_new; i++) {
        match best = {0, -1, -1.0e30, 0};   /* worse than every comparison */
        for (int j = 0; j < n_old; j++) {
            best = max_PRL(best, wght(N[i], E[j]));
        }
        M[i] = best;
    }
}

static unsigned scatter(unsigned x)
{
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    x *= 3266489917u;
    return x ^ x >> 16;
}

static record person(unsigned who, int id)
{
    record p;
    p.id = id;
    p.first_name = (int)(scatter(who * 16 + 1) % 97);
    p.last_name = (int)(scatter(who * 16 + 2) % 211);
    p.birth_name = who % 3 ? p.last_name : (int)(scatter(who * 16 + 3) % 211);
    p.birth_day = (int)(scatter(who * 16 + 4) % 31) + 1;
    p.birth_month = (int)(scatter(who * 16 + 5) % 12) + 1;
    p.birth_year = (int)(scatter(who * 16 + 6) % 60) + 1930;
    p.sex = (int)(scatter(who * 16 + 7) % 2);
    p.nationality = (int)(scatter(who * 16 + 8) % 5);
    p.street = (int)(scatter(who * 16 + 9) % 307);
    p.house = (int)(scatter(who * 16 + 10) % 50) + 1;
    p.zip = (int)(scatter(who * 16 + 11) % 101);
    p.city = p.zip / 3;
    p.state = p.zip / 20;
    p.country = 1;
    return p;
}

/* The attributes once more, as plain numbers: the reference walks tables instead of branches. */
static void attributes(const record *r, int a[14])
{
    a[0] = r->first_name, a[1] = r->last_name, a[2] = r->birth_name, a[3] = r->birth_day, a[4] = r->birth_month;
    a[5] = r->birth_year, a[6] = r->sex, a[7] = r->nationality, a[8] = r->street, a[9] = r->house, a[10] = r->zip;
    a[11] = r->city, a[12] = r->state, a[13] = r->country;
}

static int weight_in_eighths(const record *x, const record *y)
{
    static const int agree[14] = {49, 60, 58, 27, 20, 34, 5, 9, 48, 36, 43, 30, 15, 4};
    static const int differ[14] = {18, 25, 12, 16, 14, 21, 28, 10, 7, 5, 6, 4, 9, 17};
    static const unsigned stages[7] = {0x3, 0x22, 0xc, 0x38, 0x500, 0x401, 0x340};
    int a[14], b[14], sum = 0, passes = 0;
    unsigned equal = 0;

    attributes(x, a);
    attributes(y, b);
    for (int t = 0; t < 14; t++) {
        equal |= (unsigned)(a[t] == b[t]) << t;
        sum += a[t] == b[t] ? agree[t] : -differ[t];
    }
    for (int t = 0; t < 7; t++)
        passes += (equal & stages[t]) == stages[t];
    return passes ? sum : 0;
}

int main(void)
{
    record *N = calloc(NEW + 1, sizeof *N);
    record *E = calloc(OLD + 1, sizeof *E);
    match *M = calloc(NEW + 1, sizeof *M);
    const int step = NEW / 500 + 1;
    int bad = 0;

    if (!N || !E || !M)
        return 2;
    for (int j = 0; j < OLD; j++)           /* ids do not follow the order, and records repeat: ties occur */
        E[j] = person((unsigned)(j % (OLD / 2 + 1)), OLD - j);
    for (int i = 0; i < NEW; i++) {
        N[i] = person((unsigned)i * 7u, 1000000 + i);
        if (i % 4 == 1)
            N[i].zip = 0, N[i].city = 0, N[i].house = 0;
        if (i % 4 == 2)
            N[i].last_name = 0, N[i].birth_year = 0;
    }

    link_records(M, N, E, NEW, OLD);

    for (int i = 0; i < NEW && !bad; i += step) {
        int best = -1, id = -1, status;
        for (int j = 0; j < OLD; j++) {
            int w = weight_in_eighths(&N[i], &E[j]);
            if (id == -1 || w > best || (w == best && E[j].id < id))
                best = w, id = E[j].id;
        }
        status = id == -1 ? 0 : (best >= 8 * 15) + (best >= 8 * 45);
        if (M[i].id_old != id || M[i].status != status || (id != -1 && M[i].weight * 8.0 != (double)best)
            || M[i].id_new != (id == -1 ? 0 : N[i].id)) {
            printf("prl: mismatch at %d got (%d, %g, %d) expected (%d, %g, %d)\n",
                   i, M[i].id_old, M[i].weight, M[i].status, id, best / 8.0, status);
            bad = 1;
        }
    }
    free(N);
    free(E);
    free(M);
    if (!bad)
        puts("prl: ok");
    return bad;
}

/* It runs once, whatever `i` is: no loop from `i` to 5 does that, and what `i` is is not known here. */
void f(float *y, int i)
{
#pragma mdh
    do { //! MDH210
        y[i] = 0;
        i++;
    } while (i < 5);
}

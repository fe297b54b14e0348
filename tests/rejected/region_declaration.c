//!accept scop
/* Braces around the region would hide `q` from the last line. */
void f(float *y, int n)
{
#pragma scop
    float q = 1; //! MDH105
    for (int i = 0; i < n; i++)
        y[i] = q;
#pragma endscop
    y[0] = q;
}

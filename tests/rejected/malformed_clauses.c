void f(float *y, int n)
{
//!next MDH402
#pragma mdh combine_ops(cc
    for (int i = 0; i < n; i++)
        y[i] = 0;
//!next MDH402
#pragma mdh sizes(n)
    for (int i = 0; i < n; i++)
        y[i] = 0;
//!next MDH402
#pragma mdh combine_ops(pw(-))
    for (int i = 0; i < n; i++)
        y[i] = 0;
//!next MDH402
#pragma mdh fp(quick)
    for (int i = 0; i < n; i++)
        y[i] = 0;
//!next MDH402
#pragma mdh target(fpga)
    for (int i = 0; i < n; i++)
        y[i] = 0;
//!next MDH402
#pragma mdh noalias(y)
    for (int i = 0; i < n; i++)
        y[i] = 0;
//!next MDH402
#pragma mdh out
    for (int i = 0; i < n; i++)
        y[i] = 0;
//!next MDH402
#pragma mdh ( y[i] ++ )
    for (int i = 0; i < n; i++)
        y[i] = 0;
}

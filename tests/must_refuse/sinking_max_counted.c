//! ordered: i
/* a maximum that sinks, and how often it changed */
int f(int n, float *a)
{
    float s = 0; int c = 0;
#pragma mdh
    for (int i = 0; i < n; i++) { float old = s; s = a[i] > s ? a[i] : s - 0.5f; c += s != old; }
    return c;
}

/* A flat row is told from the next one by the constant number of iterations of a loop around both. */
void f(unsigned short *w9)
{
#pragma mdh
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < i; j++) {
            for (int l = i + 1; l < 3; l++) {
                w9[(j * 3 + l) * 1 + 0] = 0;
            }
        }
    }
}

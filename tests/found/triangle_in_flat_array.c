/* Only the triangle keeps the three iterators from sharing a cell. */
void f(unsigned short *w9)
{
#pragma mdh
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < i; j++) {
            for (int l = i + 1; l < 3; l++) {
                w9[j * 3 + l] = 0;
            }
        }
    }
}

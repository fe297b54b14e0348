/* Under a condition that never holds, the variable keeps 7 and is no truth value. */
void f(int s3, int *r_s3)
{
#pragma mdh
    for (int j = 0; j < 2; j++) {
        if (0) {
            s3 = (0 || s3);
        }
    }
    *r_s3 = s3;
}

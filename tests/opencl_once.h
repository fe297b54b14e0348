/* For tests: all nests of an emitted file are compiled as one text of OpenCL for each set of options.

   A compiler of OpenCL reads thousands of declarations before it comes to a kernel.  `once_texts()` are the
   texts of the nests, each between two lines of the preprocessor that keep its structures apart; a nest whose
   text is not among them ends the run. */
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int once_count(void);
static const char *const *once_texts(void);

static struct {
    cl_program program;
    char options[512];
} once_built[4];

static cl_program once_program(cl_context context, cl_uint count, const char **text, const size_t *lengths, cl_int *answer)
{
    int known = 0;
    for (int k = 0; k < once_count(); k++)
        known |= once_texts()[3*k + 1] == *text;
    if (count != 1 || lengths || !known) {
        fprintf(stderr, "opencl_once: not one of the nests' texts\n");
        exit(3);
    }
    return clCreateProgramWithSource(context, 3*(cl_uint)once_count(), (const char **)once_texts(), NULL, answer);
}

static cl_int once_build(cl_program *program, cl_uint count, const cl_device_id *devices, const char *options)
{
    for (int k = 0; k < 4; k++) {
        if (!once_built[k].program) {
            cl_int answer = clBuildProgram(*program, count, devices, options, NULL, NULL);
            if (answer == CL_SUCCESS) {
                snprintf(once_built[k].options, sizeof once_built[k].options, "%s", options);
                once_built[k].program = *program;
            } else {
                static char log[4096];
                clGetProgramBuildInfo(*program, devices[0], CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
                fprintf(stderr, "opencl_once: %s\n", log);
            }
            return answer;
        }
        if (!strcmp(once_built[k].options, options)) {
            clReleaseProgram(*program);
            *program = once_built[k].program;
            return CL_SUCCESS;
        }
    }
    fprintf(stderr, "opencl_once: more options than are expected\n");
    exit(3);
}

#define clCreateProgramWithSource once_program
#define clBuildProgram(program, count, devices, options, then, with) once_build(&(program), count, devices, options)

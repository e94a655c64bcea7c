/* Memory whose pages are there before they are touched.
 *
 *     take_pages_at_once() -> bool
 *
 * The kernel hands memory out page by page as it is touched, each time by an interruption; that is
 * a tenth of a large plan's time. From the call on, the pages of an arena, the 1 MiB in which Python
 * keeps small objects, are taken together, and malloc's heap, where texts and tables are, grows by
 * larger steps and gives nothing back.
 *
 * That is for a process that ends soon. Out: whether it is so now. Elsewhere than on Linux, and on a
 * Python without arenas, nothing is changed; nor are pages taken by kernels before 5.14. The
 * functions of Python that this needs are public but not of the limited API, so that the reference
 * to them is weak. Python holds its lock when it calls `allocate`.
 */

#define _DEFAULT_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#ifdef __linux__

#include <limits.h>
#include <malloc.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define HEAP_STEP (4 << 20)
#define MAX_IN_HEAP (4 << 20) /* what is larger gets pages of its own, and gives them back */

/* `PyObjectArenaAllocator` */
typedef struct {
    void *context;
    void *(*allocate)(void *context, size_t size);
    void (*release)(void *context, void *arena, size_t size);
} Allocator;

extern void PyObject_GetArenaAllocator(Allocator *allocator) __attribute__((weak));
extern void PyObject_SetArenaAllocator(Allocator *allocator) __attribute__((weak));

static Allocator given;

static void *
allocate(void *context, size_t size)
{
    void *arena = given.allocate(context, size);
    if (arena != NULL)
        madvise(arena, size, MADV_POPULATE_WRITE); /* where it is refused, pages come as ever */
    return arena;
}

static void
stretch_heap(void)
{
#ifdef __GLIBC__
    mallopt(M_TOP_PAD, HEAP_STEP);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_MMAP_THRESHOLD, MAX_IN_HEAP);
#endif
}

static int
switch_over(void)
{
    if (PyObject_GetArenaAllocator == NULL || PyObject_SetArenaAllocator == NULL)
        return 0;
    if (given.allocate != NULL)
        return 1;
    PyObject_GetArenaAllocator(&given);
    if (given.allocate == NULL)
        return 0;
    Allocator ours = {given.context, allocate, given.release};
    PyObject_SetArenaAllocator(&ours);
    stretch_heap();
    return 1;
}

#else

static int
switch_over(void)
{
    return 0;
}

#endif

static PyObject *
take_pages_at_once(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(switch_over());
}

static PyMethodDef methods[] = {
    {"take_pages_at_once", take_pages_at_once, METH_NOARGS, "Take pages before they are touched."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_pages", "Pages taken at once.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__pages(void)
{
    return PyModuleDef_Init(&definition);
}

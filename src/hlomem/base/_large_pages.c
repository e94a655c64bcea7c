/* Large pages for the memory of a process.
 *
 *     use_large_pages() -> bool
 *
 * The kernel hands out memory in pages of 4 KiB as they are touched, which is a tenth of a large
 * plan's time. From the call on, memory is taken from stretches whose pages may be 2 MiB:
 *
 * - the arenas of 1 MiB in which Python keeps small objects. Those that were there before go back
 *   to where they came from; ours are kept for the next who asks.
 * - the first stretch of malloc's heap, where lists, dictionaries and texts are. It grows by whole
 *   stretches from then on, and nothing is given back.
 *
 * That is for a process that ends soon. Out: whether it is so now. Elsewhere than on Linux, and on
 * a Python without arenas, nothing is changed. The functions of Python that this needs are public
 * but not of the limited API, so that the reference to them is weak. Python holds its lock when it
 * calls `allocate` and `release`.
 */

#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#ifdef __linux__

#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_PAGE ((size_t)2 << 20)
#define STRETCH ((size_t)32 << 20)
#define MAX_STRETCHES 4096
#define HEAP_STEP (64 << 20)
#define MAX_IN_HEAP (32 << 20) /* what is larger gets pages of its own; malloc allows no more */

/* `PyObjectArenaAllocator` */
typedef struct {
    void *context;
    void *(*allocate)(void *context, size_t size);
    void (*release)(void *context, void *arena, size_t size);
} Allocator;

extern void PyObject_GetArenaAllocator(Allocator *allocator) __attribute__((weak));
extern void PyObject_SetArenaAllocator(Allocator *allocator) __attribute__((weak));

typedef struct Released {
    struct Released *next;
} Released;

static Allocator given;
static char *stretches[MAX_STRETCHES];
static size_t stretch_count;
static size_t used; /* bytes of the last stretch */
static size_t arena_size; /* of all that are ours */
static Released *released;

/* A stretch that begins where a large page does; NULL where there is none to be had. */
static char *
map_stretch(void)
{
    size_t size = STRETCH + LARGE_PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = (LARGE_PAGE - (uintptr_t)start % LARGE_PAGE) % LARGE_PAGE;
    if (before > 0)
        munmap(start, before);
    munmap(start + before + STRETCH, LARGE_PAGE - before);
    return start + before;
}

/* Whether there is room for an arena in the last stretch, or in one more. */
static int
has_room(void)
{
    if (stretch_count > 0 && used + arena_size <= STRETCH)
        return 1;
    if (stretch_count == MAX_STRETCHES)
        return 0;
    char *stretch = map_stretch();
    if (stretch == NULL)
        return 0;
    madvise(stretch, STRETCH, MADV_HUGEPAGE); /* where it is refused, pages are small as ever */
    stretches[stretch_count++] = stretch;
    used = 0;
    return 1;
}

static void *
allocate(void *context, size_t size)
{
    (void)context;
    if (arena_size == 0 && size <= STRETCH)
        arena_size = size;
    if (size != arena_size)
        return given.allocate(given.context, size);
    if (released != NULL) {
        Released *arena = released;
        released = arena->next;
        return arena;
    }
    if (!has_room())
        return given.allocate(given.context, size);
    char *arena = stretches[stretch_count - 1] + used;
    used += size;
    return arena;
}

static int
is_ours(const char *arena)
{
    for (size_t i = 0; i < stretch_count; i++) {
        if ((uintptr_t)arena - (uintptr_t)stretches[i] < STRETCH)
            return 1;
    }
    return 0;
}

static void
release(void *context, void *arena, size_t size)
{
    (void)context;
    if (!is_ours(arena)) {
        given.release(given.context, arena, size);
        return;
    }
    Released *first = arena;
    first->next = released;
    released = first;
}

#ifdef __GLIBC__

/* Makes malloc's heap grow, so much that whatever is planned has room, and asks for large pages. */
static void
stretch_heap(void)
{
    mallopt(M_TOP_PAD, HEAP_STEP);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_MMAP_THRESHOLD, MAX_IN_HEAP);
    char *before = sbrk(0);
    void *volatile block = malloc(MAX_IN_HEAP / 2); /* volatile, or the compiler leaves it out */
    free(block);
    char *after = sbrk(0);
    if (before == (void *)-1 || after == (void *)-1 || after <= before)
        return;
    size_t skipped = (LARGE_PAGE - (uintptr_t)before % LARGE_PAGE) % LARGE_PAGE;
    size_t size = (size_t)(after - before);
    if (size > skipped)
        madvise(before + skipped, size - skipped, MADV_HUGEPAGE);
}

#else

static void
stretch_heap(void)
{
}

#endif

static int
switch_over(void)
{
    if (PyObject_GetArenaAllocator == NULL || PyObject_SetArenaAllocator == NULL)
        return 0;
    if (given.allocate != NULL)
        return 1;
    PyObject_GetArenaAllocator(&given);
    if (given.allocate == NULL || given.release == NULL)
        return 0;
    Allocator ours = {NULL, allocate, release};
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
use_large_pages(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(switch_over());
}

static PyMethodDef methods[] = {
    {"use_large_pages", use_large_pages, METH_NOARGS, "Take memory from large pages."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_large_pages", "Large pages.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__large_pages(void)
{
    return PyModuleDef_Init(&definition);
}

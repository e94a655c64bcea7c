/* Best fit, natively: what `hlomem.assign.packing` does with lists, several times as fast.
 *
 *     place(sizes, lives, slot_count, alignment, below) -> list[int] | None
 *
 * In: buffers in the order in which they are placed. `sizes` are their bytes, `lives` the times at
 * which each is alive: tuples of the first and the last of some slots. Out: their offsets; None as
 * soon as the heap reaches `below` bytes, unless that is 0. All numbers are below 2 ** 53, which the
 * caller has seen to, and so no sum here overflows.
 *
 * The tree is that of interval_tree.py, node for node. What is taken is not sorted as there, but cut
 * out of the gaps that are left, and a gap that became too small is left no more: of hundreds of
 * ranges few are looked at.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define BLOCK_BITS 5
#define FAN_BITS 2
#define FAN_MASK ((1 << FAN_BITS) - 1)
#define MAX_LEVELS 32
#define FEW 4 /* ranges are cut out one by one if there are this many times as many gaps */
#define MAX_NODES (2 * MAX_LEVELS << FAN_BITS)
#define MAX_NUMBER ((int64_t)1 << 53)

typedef struct {
    int64_t *items;
    Py_ssize_t count, room;
} Numbers;

/* Sorted, disjoint byte ranges. */
typedef struct {
    Numbers begins, ends;
} Ranges;

typedef struct {
    Ranges *nodes[MAX_LEVELS];
    Py_ssize_t count[MAX_LEVELS];
    int levels;
} Tree;

typedef struct {
    Py_ssize_t blocks;
    Numbers *begun; /* in each block, four numbers: first and last slot, first byte and end */
    Numbers *ended; /* in each block, three: last slot, first byte and end */
    Tree covering, within;
    Ranges gaps, cut; /* where the next buffer may go, the last without end; and room to cut them */
    int64_t size;     /* of the next buffer */
    Numbers slots;    /* and when it is alive: the first and the last of each of its lives */
} Heap;

static int
reserve(Numbers *numbers, Py_ssize_t more)
{
    if (numbers->room - numbers->count >= more)
        return 0;
    Py_ssize_t room = 2 * (numbers->count + more) + 8;
    int64_t *items = PyMem_Realloc(numbers->items, (size_t)room * sizeof(int64_t));
    if (items == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    numbers->items = items;
    numbers->room = room;
    return 0;
}

static int
append(Numbers *numbers, const int64_t *items, Py_ssize_t count)
{
    if (reserve(numbers, count) < 0)
        return -1;
    if (count)
        memcpy(numbers->items + numbers->count, items, (size_t)count * sizeof(int64_t));
    numbers->count += count;
    return 0;
}

/* Replaces the numbers from `low` to before `high` by one. */
static int
replace(Numbers *numbers, Py_ssize_t low, Py_ssize_t high, int64_t item)
{
    if (reserve(numbers, 1) < 0)
        return -1;
    memmove(numbers->items + low + 1, numbers->items + high,
            (size_t)(numbers->count - high) * sizeof(int64_t));
    numbers->items[low] = item;
    numbers->count += 1 - (high - low);
    return 0;
}

/* The first place whose number is at least `item` (`or_more`), or more than it. */
static Py_ssize_t
bisect(const Numbers *numbers, int64_t item, int or_more)
{
    Py_ssize_t low = 0, high = numbers->count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        int64_t found = numbers->items[middle];
        if (or_more ? found < item : found <= item)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Unites ranges with one more: 1 if that changed them, 0 if not, -1 without memory. */
static int
merge(Ranges *ranges, int64_t begin, int64_t end)
{
    Py_ssize_t low = bisect(&ranges->ends, begin, 1), high = bisect(&ranges->begins, end, 0);
    if (low < high) {
        int64_t first = ranges->begins.items[low], last = ranges->ends.items[high - 1];
        if (first <= begin && ranges->ends.items[low] >= end)
            return 0;
        begin = first < begin ? first : begin;
        end = last > end ? last : end;
    }
    else
        high = low;
    if (replace(&ranges->begins, low, high, begin) < 0 || replace(&ranges->ends, low, high, end) < 0)
        return -1;
    return 1;
}

/* The first place from `low` on whose number is more than `item`; it is sought nearby first. */
static Py_ssize_t
bisect_from(const int64_t *items, Py_ssize_t low, Py_ssize_t count, int64_t item)
{
    Py_ssize_t step = 1, high = low;
    while (high < count && items[high] <= item) {
        low = high + 1;
        high += step;
        step *= 2;
    }
    if (high > count)
        high = count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (items[middle] <= item)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds what is left of a gap, unless it is too small; there is room for it. */
static void
keep(Ranges *gaps, int64_t begin, int64_t end, int64_t size)
{
    if (end - begin >= size) {
        gaps->begins.items[gaps->begins.count++] = begin;
        gaps->ends.items[gaps->ends.count++] = end;
    }
}

/* Cuts sorted, disjoint ranges out of the gaps. */
static int
exclude(Heap *heap, const int64_t *begins, const int64_t *ends, Py_ssize_t count)
{
    Ranges *gaps = &heap->gaps, *cut = &heap->cut;
    Py_ssize_t next = 0, gap_count = gaps->begins.count;
    if (count == 0)
        return 0;
    cut->begins.count = cut->ends.count = 0;
    if (reserve(&cut->begins, gap_count + count) < 0 || reserve(&cut->ends, gap_count + count) < 0)
        return -1;
    for (Py_ssize_t gap = 0; gap < gap_count; gap++) {
        int64_t begin = gaps->begins.items[gap], end = gaps->ends.items[gap];
        next = bisect_from(ends, next, count, begin);
        for (; next < count && begins[next] < end; next++) {
            keep(cut, begin, begins[next], heap->size);
            begin = ends[next];
        }
        if (next)
            next--; /* it may reach into the gap that follows */
        keep(cut, begin, end, heap->size);
    }
    Ranges former = *gaps;
    *gaps = *cut;
    *cut = former;
    return 0;
}

/* Moves all gaps from place `from` on to place `to`, for which there is room. */
static void
shift(Ranges *gaps, Py_ssize_t from, Py_ssize_t to)
{
    size_t bytes = (size_t)(gaps->begins.count - from) * sizeof(int64_t);
    memmove(gaps->begins.items + to, gaps->begins.items + from, bytes);
    memmove(gaps->ends.items + to, gaps->ends.items + from, bytes);
    gaps->begins.count = gaps->ends.count = gaps->begins.count + to - from;
}

/* Cuts one range out of the gaps. */
static int
exclude_one(Heap *heap, int64_t begin, int64_t end)
{
    Ranges *gaps = &heap->gaps;
    Py_ssize_t low = bisect(&gaps->ends, begin, 0), high = low, kept = low;
    while (high < gaps->begins.count && gaps->begins.items[high] < end)
        high++;
    if (low == high)
        return 0;
    if (reserve(&gaps->begins, 1) < 0 || reserve(&gaps->ends, 1) < 0)
        return -1;
    int64_t first = gaps->begins.items[low], last = gaps->ends.items[high - 1];
    int keeps_low = begin - first >= heap->size, keeps_high = last - end >= heap->size;
    shift(gaps, high, low + keeps_low + keeps_high);
    if (keeps_low) {
        gaps->begins.items[kept] = first;
        gaps->ends.items[kept++] = begin;
    }
    if (keeps_high) {
        gaps->begins.items[kept] = end;
        gaps->ends.items[kept] = last;
    }
    return 0;
}

static int
exclude_ranges(Heap *heap, const Ranges *ranges)
{
    const int64_t *begins = ranges->begins.items, *ends = ranges->ends.items;
    Py_ssize_t count = ranges->begins.count;
    if (count * FEW > heap->gaps.begins.count)
        return exclude(heap, begins, ends, count);
    for (Py_ssize_t i = 0; i < count; i++)
        if (exclude_one(heap, begins[i], ends[i]) < 0)
            return -1;
    return 0;
}

/* The fewest nodes that are the blocks from `low` to before `high`, small ones first; how many. */
static int
find_nodes(const Tree *tree, Py_ssize_t low, Py_ssize_t high, Ranges **nodes)
{
    int count = 0;
    for (int level = 0; level < tree->levels && low < high; level++) {
        Py_ssize_t up_low = (low + FAN_MASK) >> FAN_BITS, up_high = high >> FAN_BITS;
        int is_last = up_low >= up_high;
        for (Py_ssize_t node = low; node < high; node++) {
            if (!is_last && node == up_low << FAN_BITS)
                node = up_high << FAN_BITS;
            if (node < high)
                nodes[count++] = &tree->nodes[level][node];
        }
        if (is_last)
            break;
        low = up_low;
        high = up_high;
    }
    return count;
}

static int
take(Heap *heap, int64_t first, int64_t last, int64_t begin, int64_t end)
{
    Py_ssize_t low = first >> BLOCK_BITS, high = last >> BLOCK_BITS, node = low;
    int64_t begun[4] = {first, last, begin, end}, ended[3] = {last, begin, end};
    if (append(&heap->begun[low], begun, 4) < 0)
        return -1;
    for (int level = 0; level < heap->within.levels; level++) {
        int changed = merge(&heap->within.nodes[level][node], begin, end);
        if (changed < 0)
            return -1;
        if (!changed)
            break;
        node >>= FAN_BITS;
    }
    if (low == high)
        return 0;
    if (append(&heap->ended[high], ended, 3) < 0)
        return -1;
    Ranges *nodes[MAX_NODES];
    int count = find_nodes(&heap->covering, low + 1, high, nodes);
    for (int i = 0; i < count; i++)
        if (merge(nodes[i], begin, end) < 0)
            return -1;
    return 0;
}

static int
exclude_begun(Heap *heap, Py_ssize_t block, int64_t first, int64_t last)
{
    const Numbers *begun = &heap->begun[block];
    for (Py_ssize_t i = 0; i < begun->count; i += 4) {
        const int64_t *entry = begun->items + i;
        if (entry[1] >= first && entry[0] <= last && exclude_one(heap, entry[2], entry[3]) < 0)
            return -1;
    }
    return 0;
}

/* Cuts the ranges in use at any moment of some slots out of the gaps. */
static int
exclude_taken(Heap *heap, int64_t first, int64_t last)
{
    Py_ssize_t low = first >> BLOCK_BITS, high = last >> BLOCK_BITS;
    for (int level = heap->covering.levels - 1; level >= 0; level--)
        if (exclude_ranges(heap, &heap->covering.nodes[level][low >> (level * FAN_BITS)]) < 0)
            return -1;
    Ranges *nodes[MAX_NODES];
    int count = find_nodes(&heap->within, low + 1, high, nodes);
    while (count--) /* large ones first: they leave fewest gaps */
        if (exclude_ranges(heap, nodes[count]) < 0)
            return -1;
    const Numbers *ended = &heap->ended[low];
    for (Py_ssize_t i = 0; i < ended->count; i += 3) {
        const int64_t *entry = ended->items + i;
        if (entry[0] >= first && exclude_one(heap, entry[1], entry[2]) < 0)
            return -1;
    }
    if (exclude_begun(heap, low, first, last) < 0)
        return -1;
    return low == high ? 0 : exclude_begun(heap, high, first, last);
}

/* Begins with one gap that holds everything. */
static int
open_gaps(Heap *heap, int64_t size)
{
    int64_t beginning = 0, endless = INT64_MAX;
    heap->size = size;
    heap->gaps.begins.count = heap->gaps.ends.count = 0;
    if (append(&heap->gaps.begins, &beginning, 1) < 0)
        return -1;
    return append(&heap->gaps.ends, &endless, 1);
}

/* The beginning of the smallest gap, the lowest of equals; the last one has no end. */
static int64_t
best_fit(const Ranges *gaps)
{
    Py_ssize_t last = gaps->begins.count - 1;
    int64_t best = gaps->begins.items[last], best_gap = INT64_MAX;
    for (Py_ssize_t i = 0; i < last; i++) {
        int64_t gap = gaps->ends.items[i] - gaps->begins.items[i];
        if (gap < best_gap) {
            best_gap = gap;
            best = gaps->begins.items[i];
        }
    }
    return best;
}

static int
make_tree(Tree *tree, Py_ssize_t blocks)
{
    for (Py_ssize_t count = blocks;; count = (count + FAN_MASK) >> FAN_BITS) {
        Ranges *nodes = PyMem_Calloc((size_t)count, sizeof(Ranges));
        if (nodes == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        tree->nodes[tree->levels] = nodes;
        tree->count[tree->levels++] = count;
        if (count == 1)
            return 0;
    }
}

static void
free_tree(Tree *tree)
{
    for (int level = 0; level < tree->levels; level++) {
        for (Py_ssize_t node = 0; node < tree->count[level]; node++) {
            PyMem_Free(tree->nodes[level][node].begins.items);
            PyMem_Free(tree->nodes[level][node].ends.items);
        }
        PyMem_Free(tree->nodes[level]);
    }
}

static void
free_heap(Heap *heap)
{
    for (Py_ssize_t block = 0; block < heap->blocks; block++) {
        if (heap->begun != NULL)
            PyMem_Free(heap->begun[block].items);
        if (heap->ended != NULL)
            PyMem_Free(heap->ended[block].items);
    }
    PyMem_Free(heap->begun);
    PyMem_Free(heap->ended);
    free_tree(&heap->covering);
    free_tree(&heap->within);
    PyMem_Free(heap->gaps.begins.items);
    PyMem_Free(heap->gaps.ends.items);
    PyMem_Free(heap->cut.begins.items);
    PyMem_Free(heap->cut.ends.items);
    PyMem_Free(heap->slots.items);
}

static int
make_heap(Heap *heap, int64_t slot_count)
{
    heap->blocks = (Py_ssize_t)(slot_count >> BLOCK_BITS) + 1;
    heap->begun = PyMem_Calloc((size_t)heap->blocks, sizeof(Numbers));
    heap->ended = PyMem_Calloc((size_t)heap->blocks, sizeof(Numbers));
    if (heap->begun == NULL || heap->ended == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (make_tree(&heap->covering, heap->blocks) < 0)
        return -1;
    return make_tree(&heap->within, heap->blocks);
}

/* A number, if it is from `low` to before `high`; else -1 and an error. */
static int64_t
number_in(PyObject *item, int64_t low, int64_t high)
{
    int64_t number = item == NULL ? -1 : PyLong_AsLongLong(item);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < low || number >= high) {
        PyErr_SetString(PyExc_ValueError, "a size, count or slot is out of range");
        return -1;
    }
    return number;
}

/* Reads the lives of one buffer: the first and the last slot of each. */
static int
read_lives(PyObject *lives, int64_t slot_count, Numbers *slots)
{
    if (!PyTuple_Check(lives)) {
        PyErr_SetString(PyExc_TypeError, "the lives of a buffer must be a tuple");
        return -1;
    }
    Py_ssize_t count = PyTuple_Size(lives);
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "the number of a buffer's lives is out of range");
        return -1;
    }
    slots->count = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *life = PyTuple_GetItem(lives, i);
        if (!PyTuple_Check(life) || PyTuple_Size(life) != 2) {
            PyErr_SetString(PyExc_TypeError, "a life must be a tuple of two slots");
            return -1;
        }
        int64_t slot[2] = {number_in(PyTuple_GetItem(life, 0), 0, slot_count), -1};
        if (slot[0] < 0)
            return -1;
        slot[1] = number_in(PyTuple_GetItem(life, 1), slot[0], slot_count);
        if (slot[1] < 0 || append(slots, slot, 2) < 0)
            return -1;
    }
    return 0;
}

/* The offset of one buffer, whose lives have been read; -1 on an error. */
static int64_t
place_one(Heap *heap, int64_t size, int64_t padded)
{
    const Numbers *slots = &heap->slots;
    if (open_gaps(heap, size) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < slots->count; i += 2)
        if (exclude_taken(heap, slots->items[i], slots->items[i + 1]) < 0)
            return -1;
    int64_t offset = best_fit(&heap->gaps);
    for (Py_ssize_t i = 0; i < slots->count; i += 2)
        if (take(heap, slots->items[i], slots->items[i + 1], offset, offset + padded) < 0)
            return -1;
    return offset;
}

/* Places all buffers: 1 if that was done, 0 if the heap is not below `below`, -1 on an error. */
static int
place_all(Heap *heap, PyObject *sizes, PyObject *lives, int64_t slot_count, int64_t alignment,
          int64_t below, PyObject *offsets)
{
    Py_ssize_t total = PyList_Size(offsets);
    for (Py_ssize_t i = 0; i < total; i++) {
        int64_t size = number_in(PyList_GetItem(sizes, i), 1, MAX_NUMBER);
        if (size < 0 || read_lives(PyList_GetItem(lives, i), slot_count, &heap->slots) < 0)
            return -1;
        int64_t padded = (size + alignment - 1) / alignment * alignment;
        int64_t offset = place_one(heap, size, padded);
        if (offset < 0)
            return -1;
        if (offset >= MAX_NUMBER - padded) {
            PyErr_SetString(PyExc_OverflowError, "the heap is too large");
            return -1;
        }
        if (below && offset + size >= below)
            return 0;
        PyObject *number = PyLong_FromLongLong(offset);
        if (number == NULL || PyList_SetItem(offsets, i, number) < 0)
            return -1;
    }
    return 1;
}

static PyObject *
place(PyObject *module, PyObject *arguments)
{
    PyObject *sizes, *lives;
    long long slot_count, alignment, below;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!LLL", &PyList_Type, &sizes, &PyList_Type, &lives,
                          &slot_count, &alignment, &below))
        return NULL;
    Py_ssize_t total = PyList_Size(sizes);
    if (slot_count < 0 || slot_count > INT32_MAX || alignment < 1 || alignment >= MAX_NUMBER ||
        PyList_Size(lives) != total) {
        PyErr_SetString(PyExc_ValueError, "slots, alignment or number of lives out of range");
        return NULL;
    }
    Heap heap = {0};
    PyObject *offsets = PyList_New(total);
    int is_done = -1;
    if (offsets != NULL && make_heap(&heap, slot_count) == 0)
        is_done = place_all(&heap, sizes, lives, slot_count, alignment, below, offsets);
    free_heap(&heap);
    if (is_done == 1)
        return offsets;
    Py_XDECREF(offsets);
    if (is_done < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"place", place, METH_VARARGS, "The offsets of buffers by best fit."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_heap", "Best fit, natively.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__heap(void)
{
    return PyModuleDef_Init(&definition);
}

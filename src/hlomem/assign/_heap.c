/* Best fit, natively: what `hlomem.assign.packing` does with lists, several times as fast.
 *
 *     place(sizes, counts, firsts, lasts, slot_count, alignment, below) -> list[int] | None
 *
 * In: buffers in the order in which they are placed. `sizes` are their bytes, `counts` how many
 * lives each has; `firsts` and `lasts` are those lives, in slots of time. Out: their offsets; None
 * as soon as the heap reaches `below` bytes, unless that is 0. All numbers are below 2 ** 53, which
 * the caller has seen to, and so no sum here overflows.
 *
 * The tree is that of interval_tree.py, node for node.
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
    Numbers begins, ends, spare; /* what was collected, and room to sort it */
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

static int
collect_ranges(Heap *heap, const Ranges *ranges)
{
    if (append(&heap->begins, ranges->begins.items, ranges->begins.count) < 0)
        return -1;
    return append(&heap->ends, ranges->ends.items, ranges->ends.count);
}

/* The fewest nodes that are the blocks from `low` to before `high`: merged, or collected. */
static int
visit(Heap *heap, Tree *tree, Py_ssize_t low, Py_ssize_t high, int merges, int64_t begin, int64_t end)
{
    for (int level = 0; level < tree->levels && low < high; level++) {
        Py_ssize_t up_low = (low + FAN_MASK) >> FAN_BITS, up_high = high >> FAN_BITS;
        int is_last = up_low >= up_high;
        for (Py_ssize_t node = low; node < high; node++) {
            if (!is_last && node == up_low << FAN_BITS)
                node = up_high << FAN_BITS;
            if (node >= high)
                break;
            Ranges *ranges = &tree->nodes[level][node];
            if ((merges ? merge(ranges, begin, end) : collect_ranges(heap, ranges)) < 0)
                return -1;
        }
        if (is_last)
            break;
        low = up_low;
        high = up_high;
    }
    return 0;
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
    return visit(heap, &heap->covering, low + 1, high, 1, begin, end);
}

static int
collect_begun(Heap *heap, Py_ssize_t block, int64_t first, int64_t last)
{
    const Numbers *begun = &heap->begun[block];
    for (Py_ssize_t i = 0; i < begun->count; i += 4) {
        const int64_t *entry = begun->items + i;
        if (entry[1] >= first && entry[0] <= last &&
            (append(&heap->begins, entry + 2, 1) < 0 || append(&heap->ends, entry + 3, 1) < 0))
            return -1;
    }
    return 0;
}

/* Adds to what was collected the ranges in use at any moment of some slots. */
static int
collect(Heap *heap, int64_t first, int64_t last)
{
    Py_ssize_t low = first >> BLOCK_BITS, high = last >> BLOCK_BITS, node = low;
    if (collect_begun(heap, low, first, last) < 0)
        return -1;
    if (low != high && collect_begun(heap, high, first, last) < 0)
        return -1;
    const Numbers *ended = &heap->ended[low];
    for (Py_ssize_t i = 0; i < ended->count; i += 3) {
        const int64_t *entry = ended->items + i;
        if (entry[0] >= first &&
            (append(&heap->begins, entry + 1, 1) < 0 || append(&heap->ends, entry + 2, 1) < 0))
            return -1;
    }
    for (int level = 0; level < heap->covering.levels; level++, node >>= FAN_BITS)
        if (collect_ranges(heap, &heap->covering.nodes[level][node]) < 0)
            return -1;
    return visit(heap, &heap->within, low + 1, high, 0, 0, 0);
}

/* Sorts numbers that are runs of sorted ones: neighbours are merged until one run is left. */
static int
sort_runs(Numbers *numbers, Numbers *spare)
{
    Py_ssize_t count = numbers->count;
    spare->count = 0;
    if (reserve(spare, count) < 0)
        return -1;
    for (;;) {
        int64_t *from = numbers->items, *to = spare->items;
        Py_ssize_t start = 0, runs = 0;
        while (start < count) {
            Py_ssize_t middle = start + 1, end;
            while (middle < count && from[middle - 1] <= from[middle])
                middle++;
            end = middle < count ? middle + 1 : middle;
            while (end < count && from[end - 1] <= from[end])
                end++;
            Py_ssize_t left = start, right = middle, out = start;
            while (left < middle && right < end) { /* without branches to guess */
                int64_t one = from[left], other = from[right];
                int is_other = other < one;
                to[out++] = is_other ? other : one;
                right += is_other;
                left += !is_other;
            }
            while (left < middle)
                to[out++] = from[left++];
            while (right < end)
                to[out++] = from[right++];
            start = end;
            runs++;
        }
        Numbers sorted = *spare;
        *spare = *numbers;
        *numbers = sorted;
        numbers->count = count;
        if (runs <= 1)
            return 0;
    }
}

/* The beginning of the smallest gap of at least `size` bytes, the lowest of equals; -1 without
 * memory. Behind the n-th end there is a gap exactly if no more than n ranges have begun. */
static int64_t
best_fit(Heap *heap, int64_t size, int64_t padded)
{
    int64_t beginning = 0, endless = INT64_MAX, best = -1, best_gap = INT64_MAX;
    if (append(&heap->begins, &endless, 1) < 0 || append(&heap->ends, &beginning, 1) < 0)
        return -1;
    if (sort_runs(&heap->begins, &heap->spare) < 0 || sort_runs(&heap->ends, &heap->spare) < 0)
        return -1;
    Py_ssize_t count = heap->ends.count;
    for (Py_ssize_t i = 0; i + 1 < count; i++) {
        int64_t gap = heap->begins.items[i] - heap->ends.items[i];
        if (gap >= size && gap < best_gap) {
            best_gap = gap;
            best = heap->ends.items[i];
            if (gap == padded)
                return best;
        }
    }
    return best >= 0 ? best : heap->ends.items[count - 1];
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
    PyMem_Free(heap->begins.items);
    PyMem_Free(heap->ends.items);
    PyMem_Free(heap->spare.items);
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

/* The number at a place of a list, if it is from `low` to before `high`; else -1 and an error. */
static int64_t
number_at(PyObject *list, Py_ssize_t place, int64_t low, int64_t high)
{
    PyObject *item = PyList_GetItem(list, place);
    if (item == NULL)
        return -1;
    int64_t number = PyLong_AsLongLong(item);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < low || number >= high) {
        PyErr_SetString(PyExc_ValueError, "a size, count or slot is out of range");
        return -1;
    }
    return number;
}

/* The offset of one buffer, whose lives begin at place `life` of the lists; -1 on an error. */
static int64_t
place_one(Heap *heap, int64_t size, int64_t padded, PyObject *firsts, PyObject *lasts,
          Py_ssize_t life, Py_ssize_t count, int64_t slot_count)
{
    heap->begins.count = heap->ends.count = 0;
    for (Py_ssize_t i = life; i < life + count; i++) {
        int64_t first = number_at(firsts, i, 0, slot_count);
        int64_t last = first < 0 ? -1 : number_at(lasts, i, first, slot_count);
        if (last < 0 || collect(heap, first, last) < 0)
            return -1;
    }
    int64_t offset = best_fit(heap, size, padded);
    if (offset < 0)
        return -1;
    for (Py_ssize_t i = life; i < life + count; i++) {
        int64_t first = number_at(firsts, i, 0, slot_count);
        int64_t last = first < 0 ? -1 : number_at(lasts, i, first, slot_count);
        if (last < 0 || take(heap, first, last, offset, offset + padded) < 0)
            return -1;
    }
    return offset;
}

static PyObject *
place(PyObject *module, PyObject *arguments)
{
    PyObject *sizes, *counts, *firsts, *lasts;
    long long slot_count, alignment, below;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!LLL", &PyList_Type, &sizes, &PyList_Type, &counts,
                          &PyList_Type, &firsts, &PyList_Type, &lasts, &slot_count, &alignment,
                          &below))
        return NULL;
    if (slot_count < 0 || slot_count > INT32_MAX || alignment < 1 || alignment >= MAX_NUMBER) {
        PyErr_SetString(PyExc_ValueError, "slots or alignment out of range");
        return NULL;
    }
    Heap heap = {0};
    Py_ssize_t total = PyList_Size(sizes), life = 0;
    PyObject *offsets = PyList_New(total);
    if (offsets == NULL || make_heap(&heap, slot_count) < 0)
        goto failed;
    for (Py_ssize_t i = 0; i < total; i++) {
        int64_t size = number_at(sizes, i, 1, MAX_NUMBER);
        int64_t count = size < 0 ? -1 : number_at(counts, i, 1, INT32_MAX);
        if (count < 0)
            goto failed;
        int64_t padded = (size + alignment - 1) / alignment * alignment;
        int64_t offset = place_one(&heap, size, padded, firsts, lasts, life, count, slot_count);
        if (offset < 0)
            goto failed;
        life += count;
        if (offset >= MAX_NUMBER - padded) {
            PyErr_SetString(PyExc_OverflowError, "the heap is too large");
            goto failed;
        }
        if (below && offset + size >= below) {
            free_heap(&heap);
            Py_DECREF(offsets);
            Py_RETURN_NONE;
        }
        PyObject *number = PyLong_FromLongLong(offset);
        if (number == NULL || PyList_SetItem(offsets, i, number) < 0)
            goto failed;
    }
    free_heap(&heap);
    return offsets;
failed:
    free_heap(&heap);
    Py_XDECREF(offsets);
    return NULL;
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

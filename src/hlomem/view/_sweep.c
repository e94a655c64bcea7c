/* Pairs that share bytes, natively: what `hlomem.view.sweep` does, several times as fast.
 *
 *     find_sharing(stays, limit) -> list[tuple[Residency, Residency]] | None
 *
 * In: a list of tuples (first, last, number, start, end, who), in the order in which they come. Out:
 * every pair that shares bytes at some moment, in the order in which the Python module finds
 * them; None where there are more than `limit`, or numbers that need more than 62 bits.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define GROUPS 64
#define MAX_NUMBER ((int64_t)1 << 61)

typedef enum { FAILED = -1, OTHER = 0, FOUND = 1 } Outcome;

typedef struct {
    int64_t first, last, start, end;
    Py_ssize_t place; /* among the stays */
} Stay;

/* Stays of similar size that are present, by their first byte; among equals in order of coming. */
typedef struct {
    Stay *items;
    Py_ssize_t count, room;
} Group;

typedef struct {
    Stay *stays;
    Stay **by_end;
    Py_ssize_t total, left; /* how many stays there are, and how many of `by_end` are over */
    Group groups[GROUPS];
    int order[GROUPS]; /* the groups that have stays, the first to get one first */
    int used;
} Sweep;

static Outcome
read_number(PyObject *stay, Py_ssize_t place, int64_t *number)
{
    PyObject *item = PyTuple_GetItem(stay, place);
    if (item == NULL)
        return FAILED;
    int overflow;
    long long found = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (found == -1 && PyErr_Occurred())
        return FAILED;
    *number = found;
    return overflow || found <= -MAX_NUMBER || found >= MAX_NUMBER ? OTHER : FOUND;
}

static Outcome
read_stay(PyObject *list, Py_ssize_t place, Stay *stay)
{
    PyObject *item = PyList_GetItem(list, place);
    if (item == NULL)
        return FAILED;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a stay is a tuple");
        return FAILED;
    }
    Outcome outcome = read_number(item, 0, &stay->first);
    if (outcome == FOUND)
        outcome = read_number(item, 1, &stay->last);
    if (outcome == FOUND)
        outcome = read_number(item, 3, &stay->start);
    if (outcome == FOUND)
        outcome = read_number(item, 4, &stay->end);
    stay->place = place;
    return outcome == FOUND && (stay->end < stay->start || stay->last < stay->first) ? OTHER
                                                                                     : outcome;
}

static int
compare_ends(const void *one, const void *other)
{
    int64_t first = (*(Stay *const *)one)->last, second = (*(Stay *const *)other)->last;
    return (first > second) - (first < second);
}

static Outcome
open_sweep(Sweep *sweep, PyObject *list)
{
    sweep->total = PyList_Size(list);
    sweep->stays = PyMem_Calloc((size_t)sweep->total + 1, sizeof(Stay));
    sweep->by_end = PyMem_Calloc((size_t)sweep->total + 1, sizeof(Stay *));
    if (sweep->stays == NULL || sweep->by_end == NULL) {
        PyErr_NoMemory();
        return FAILED;
    }
    for (Py_ssize_t i = 0; i < sweep->total; i++) {
        Outcome outcome = read_stay(list, i, &sweep->stays[i]);
        if (outcome != FOUND)
            return outcome;
        if (i > 0 && sweep->stays[i].first < sweep->stays[i - 1].first) {
            PyErr_SetString(PyExc_ValueError, "stays are to be sorted");
            return FAILED;
        }
        sweep->by_end[i] = &sweep->stays[i];
    }
    qsort(sweep->by_end, (size_t)sweep->total, sizeof(Stay *), compare_ends);
    return FOUND;
}

static void
close_sweep(Sweep *sweep)
{
    for (int i = 0; i < GROUPS; i++)
        PyMem_Free(sweep->groups[i].items);
    PyMem_Free(sweep->stays);
    PyMem_Free(sweep->by_end);
}

/* How many stays of a group begin before a byte, or at it and came before one of that place. */
static Py_ssize_t
count_before(const Group *group, int64_t start, Py_ssize_t place)
{
    Py_ssize_t low = 0, high = group->count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        const Stay *item = &group->items[middle];
        if (item->start < start || (item->start == start && item->place < place))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int
group_of(const Stay *stay)
{
    int bits = 0;
    for (int64_t size = stay->end - stay->start; size > 0; size >>= 1)
        bits++;
    return bits;
}

static int
add_stay(Sweep *sweep, const Stay *stay)
{
    int number = group_of(stay);
    Group *group = &sweep->groups[number];
    if (group->count == group->room) {
        Py_ssize_t room = 2 * group->room + 16;
        Stay *items = PyMem_Realloc(group->items, (size_t)room * sizeof(Stay));
        if (items == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        group->items = items;
        group->room = room;
    }
    if (group->count == 0)
        sweep->order[sweep->used++] = number;
    Py_ssize_t place = count_before(group, stay->start, stay->place);
    memmove(group->items + place + 1, group->items + place,
            (size_t)(group->count - place) * sizeof(Stay));
    group->items[place] = *stay;
    group->count++;
    return 0;
}

static void
forget_group(Sweep *sweep, int number)
{
    int place = 0;
    while (sweep->order[place] != number)
        place++;
    sweep->used--;
    memmove(sweep->order + place, sweep->order + place + 1,
            (size_t)(sweep->used - place) * sizeof(int));
}

static void
forget_stay(Sweep *sweep, const Stay *stay)
{
    int number = group_of(stay);
    Group *group = &sweep->groups[number];
    Py_ssize_t place = count_before(group, stay->start, stay->place);
    group->count--;
    memmove(group->items + place, group->items + place + 1,
            (size_t)(group->count - place) * sizeof(Stay));
    if (group->count == 0)
        forget_group(sweep, number);
}

/* What is over before a moment has come before it, too, and so is present. */
static void
forget_before(Sweep *sweep, int64_t moment)
{
    while (sweep->left < sweep->total && sweep->by_end[sweep->left]->last < moment)
        forget_stay(sweep, sweep->by_end[sweep->left++]);
}

static int
append_pair(PyObject *pairs, PyObject *list, Py_ssize_t earlier, Py_ssize_t later)
{
    PyObject *one = PyList_GetItem(list, earlier), *other = PyList_GetItem(list, later);
    PyObject *pair = one == NULL || other == NULL ? NULL : PyTuple_Pack(2, one, other);
    if (pair == NULL)
        return -1;
    int status = PyList_Append(pairs, pair);
    Py_DECREF(pair);
    return status;
}

/* Appends the pairs of a stay with those that are present. */
static Outcome
pair_up(Sweep *sweep, const Stay *stay, PyObject *list, Py_ssize_t limit, PyObject *pairs)
{
    for (int i = 0; i < sweep->used; i++) {
        const Group *group = &sweep->groups[sweep->order[i]];
        int64_t reach = (int64_t)1 << sweep->order[i];
        Py_ssize_t place = count_before(group, stay->start - reach, 0);
        for (; place < group->count && group->items[place].start < stay->end; place++) {
            if (group->items[place].end <= stay->start)
                continue;
            if (PyList_Size(pairs) >= limit)
                return OTHER;
            if (append_pair(pairs, list, group->items[place].place, stay->place) < 0)
                return FAILED;
        }
    }
    return FOUND;
}

static PyObject *
find_sharing(PyObject *module, PyObject *arguments)
{
    PyObject *list, *pairs;
    Py_ssize_t limit;
    Sweep sweep = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!n", &PyList_Type, &list, &limit))
        return NULL;
    if ((pairs = PyList_New(0)) == NULL)
        return NULL;
    Outcome outcome = open_sweep(&sweep, list);
    for (Py_ssize_t i = 0; i < sweep.total && outcome == FOUND; i++) {
        forget_before(&sweep, sweep.stays[i].first);
        outcome = pair_up(&sweep, &sweep.stays[i], list, limit, pairs);
        if (outcome == FOUND && add_stay(&sweep, &sweep.stays[i]) < 0)
            outcome = FAILED;
    }
    close_sweep(&sweep);
    if (outcome == FOUND)
        return pairs;
    Py_DECREF(pairs);
    if (outcome == FAILED)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"find_sharing", find_sharing, METH_VARARGS, "Pairs of stays that share bytes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_sweep", "Pairs that share bytes, natively.", 0, methods, NULL, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC
PyInit__sweep(void)
{
    return PyModuleDef_Init(&definition);
}

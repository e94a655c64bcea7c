/* The body of one computation: its text in, linked instructions out, as `_link_rows` of body.py.
 *
 *     link(text, begin, end, facts, shapes, callees, make, computation, index)
 *         -> (instructions, parameters, root or None, unfinished, fused) | None
 *
 * `facts` has a tuple (opcode, number of operands or -1, kind) by the text of an opcode, `shapes`
 * and `callees` are those of body.py, `make` is HloInstruction, and `index` the computation's. Out:
 * the instructions, which have operands and users; the parameters among them; the one marked as
 * root; those of which body.py finds the callees, or says what is wrong; and the callees of the
 * others. None for a body that is not as XLA prints it, or where something is wrong: body.py reads
 * it then and says what. What `facts`, `shapes` and `make` raise is raised.
 */

#include "rows.h"
#include <stdint.h>

/* `_Kind` of body.py. */
enum { PLAIN, PAYLOAD, PARAMETER, FUSION, ELEMENT, UNFINISHED, UNUSUAL };

enum { INDEX, IS_TUPLE, ELEMENTS, WORDS };
static const char *const words[WORDS] = {"index", "is_tuple", "elements"};

#define MAX_PROBES 64
#define FACTOR UINT64_C(0xc6a4a7935bd1e995)
#define MAX_ROWS (1 << 28)
#define MAX_DIGITS 9

typedef struct {
    PyObject *opcode; /* borrowed from the tuple */
    long arity;
    int kind;
} Fact;

/* An object by its text, the last with some hash. */
typedef struct {
    Part key;
    PyObject *object;
    Fact fact; /* if the object is a tuple that says one */
} Kept;

typedef struct {
    PyObject *object; /* the text */
    const char *text;
    PyObject *facts, *shapes, *callees, *make, *computation;
    long long index;
    Py_ssize_t count; /* of instructions */
    void *memory;     /* that the arrays are in */
    Kept *kept_facts, *kept_shapes; /* by hash of the text */
    Part *names;
    PyObject **shape_of, **users_of;
    int32_t *slots; /* by hash of the name, number of the instruction + 1 */
    size_t kept_mask, mask;
    Py_ssize_t *operands, operand_room; /* the numbers of one instruction's */
    uint64_t seed;
    PyObject *words[WORDS]; /* as Python has them, when they are first needed */
    PyObject *instructions, *parameters, *unfinished, *fused;
    Py_ssize_t root; /* -1 while no row is marked */
} Linker;

static uint64_t
hash_part(const char *text, Part part, uint64_t seed)
{
    const char *from = text + part.begin;
    size_t left = (size_t)(part.end - part.begin);
    uint64_t hash = seed ^ left;
    while (left > 0) {
        uint64_t word = 0;
        size_t size = left < sizeof(word) ? left : sizeof(word);
        memcpy(&word, from, size);
        word *= FACTOR;
        hash = (hash ^ word ^ word >> 47) * FACTOR;
        from += size;
        left -= size;
    }
    hash = (hash ^ hash >> 47) * FACTOR;
    return hash ^ hash >> 47;
}

/* The number of the instruction of a name, -1 where there is none, -2 after too many probes. With
 * `is_new` it becomes that of the next instruction; then a number is that of an earlier one. */
static Py_ssize_t
find_name(Linker *linker, Part name, int is_new)
{
    size_t slot = (size_t)hash_part(linker->text, name, linker->seed) & linker->mask;
    for (int probe = 0; probe < MAX_PROBES; probe++, slot = (slot + 1) & linker->mask) {
        int32_t number = linker->slots[slot];
        if (number == 0) {
            if (is_new)
                linker->slots[slot] = (int32_t)linker->count + 1;
            return -1;
        }
        if (is_same(linker->text, linker->names[number - 1], name))
            return number - 1;
    }
    return -2;
}

/* `mapping[text of the part]` in the place where it is kept; NULL and an error without it. */
static Kept *
look_up(Linker *linker, Kept *all, PyObject *mapping, Part key)
{
    uint64_t hash = hash_part(linker->text, key, linker->seed);
    Kept *kept = &all[hash & linker->kept_mask];
    if (kept->object != NULL && is_same(linker->text, kept->key, key))
        return kept;
    PyObject *string = part_of(linker->object, key);
    PyObject *object = string == NULL ? NULL : PyObject_GetItem(mapping, string);
    Py_XDECREF(string);
    if (object == NULL)
        return NULL;
    Py_XDECREF(kept->object);
    kept->key = key;
    kept->object = object;
    kept->fact.opcode = NULL;
    return kept;
}

/* The fact about an opcode; NULL and an error where none is known. */
static const Fact *
find_fact(Linker *linker, Part opcode)
{
    Kept *kept = look_up(linker, linker->kept_facts, linker->facts, opcode);
    if (kept == NULL)
        return NULL;
    Fact *fact = &kept->fact;
    if (fact->opcode == NULL &&
        !PyArg_ParseTuple(kept->object, "Oli", &fact->opcode, &fact->arity, &fact->kind))
        return NULL;
    return fact;
}

/* Passes over comments such as the one with the number of an operand. */
static Py_ssize_t
skip_index_comment(const char *text, Py_ssize_t place, Py_ssize_t end)
{
    if (!stands_at(text, place, end, "/*index=", 8) || place + 8 == end ||
        !is(text[place + 8], DIGIT))
        return place;
    Py_ssize_t after = skip(text, place + 8, end, DIGIT);
    return stands_at(text, after, end, "*/", 2) ? after + 2 : place;
}

/* Makes room for the operands that a text of some length may name: 0, or -1 and an error. */
static int
reserve_operands(Linker *linker, Py_ssize_t length)
{
    Py_ssize_t room = length / 3 + 1; /* as in `a, b, c` */
    if (room <= linker->operand_room)
        return 0;
    Py_ssize_t *operands = PyMem_Realloc(linker->operands, (size_t)room * sizeof(Py_ssize_t));
    if (operands == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    linker->operands = operands;
    linker->operand_room = room;
    return 0;
}

/* Finds the operands, with a `%` before each or none, and comments with their numbers: how many;
 * -1 where one is not found or the form is another. */
static Py_ssize_t
read_operands(Linker *linker, Part inner)
{
    const char *text = linker->text;
    Py_ssize_t place = inner.begin, count = 0;
    int has_percent = 0;
    while (place < inner.end) {
        place = skip_index_comment(text, place, inner.end);
        int is_percent = place < inner.end && text[place] == '%';
        if (count == 0)
            has_percent = is_percent;
        if (is_percent != has_percent || count == linker->operand_room)
            return -1;
        Part name = {place + is_percent, skip(text, place + is_percent, inner.end, NAME)};
        Py_ssize_t number = name.end == name.begin ? -1 : find_name(linker, name, 0);
        if (number < 0)
            return -1;
        linker->operands[count++] = number;
        place = name.end;
        if (place == inner.end)
            return count;
        if (!stands_at(text, place, inner.end, ", ", 2))
            return -1;
        place += 2;
    }
    return count == 0 ? 0 : -1; /* nothing follows the last comma */
}

/* Whether ` = ` stands in a part and is perhaps followed by an instruction. */
static int
may_hide_instruction(const char *text, Py_ssize_t place, Py_ssize_t end)
{
    while ((place = find_character(text, place, end, '=')) < end) {
        place++;
        if (text[place - 2] == ' ' && place < end && text[place] == ' ' &&
            find_character(text, place, end, '(') < end)
            return 1;
    }
    return 0;
}

static PyObject *
get_attribute(Linker *linker, PyObject *object, int word)
{
    if (linker->words[word] == NULL)
        linker->words[word] = PyUnicode_InternFromString(words[word]);
    return linker->words[word] == NULL ? NULL : PyObject_GetAttr(object, linker->words[word]);
}

/* The callee of `, kind=kLoop, calls=%name`: a tuple of it; NULL without an error where the form is
 * another, or the callee does not stand above. */
static PyObject *
find_fused(Linker *linker, Part attributes)
{
    const char *text = linker->text;
    Py_ssize_t place = attributes.begin, end = attributes.end;
    if (!stands_at(text, place, end, ", kind=k", 8))
        return NULL;
    for (place += 8; place < end && is(text[place], LETTER) && text[place] != '_';)
        place++;
    if (place == attributes.begin + 8 || !stands_at(text, place, end, ", calls=", 8))
        return NULL;
    place += 8;
    place += place < end && text[place] == '%';
    Part name = {place, skip(text, place, end, NAME)};
    if (name.end == place || (name.end < end && text[name.end] != ','))
        return NULL;
    PyObject *string = part_of(linker->object, name);
    PyObject *callee = string == NULL ? NULL : PyDict_GetItemWithError(linker->callees, string);
    Py_XDECREF(string);
    PyObject *index = callee == NULL ? NULL : get_attribute(linker, callee, INDEX);
    if (index == NULL)
        return NULL;
    long long number = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (number >= linker->index || (number == -1 && PyErr_Occurred()))
        return NULL;
    return PyList_Append(linker->fused, callee) < 0 ? NULL : PyTuple_Pack(1, callee);
}

/* Whether a shape is a tuple with an element of a number; -1 on an error. */
static int
has_element(Linker *linker, PyObject *shape, Py_ssize_t number)
{
    PyObject *is_tuple = get_attribute(linker, shape, IS_TUPLE);
    if (is_tuple == NULL)
        return -1;
    Py_DECREF(is_tuple);
    if (is_tuple != Py_True)
        return 0;
    PyObject *elements = get_attribute(linker, shape, ELEMENTS);
    if (elements == NULL)
        return -1;
    Py_ssize_t count = PyObject_Length(elements);
    Py_DECREF(elements);
    return count < 0 ? -1 : number < count;
}

/* Whether `, index=1` is the first attribute and names an element of the operand; -1 on an error. */
static int
takes_element(Linker *linker, Part attributes)
{
    const char *text = linker->text;
    Py_ssize_t place = attributes.begin, end = attributes.end, number = 0;
    if (!stands_at(text, place, end, ", index=", 8))
        return 0;
    Py_ssize_t first = place += 8;
    while (place < end && is(text[place], DIGIT) && place - first < MAX_DIGITS)
        number = 10 * number + (text[place++] - '0');
    if (place == first || (place < end && text[place] != ','))
        return 0;
    return has_element(linker, linker->shape_of[linker->operands[0]], number);
}

/* A tuple of the operands that were found. */
static PyObject *
pack_operands(Linker *linker, Py_ssize_t count)
{
    PyObject *operands = PyTuple_New(count);
    for (Py_ssize_t i = 0; operands != NULL && i < count; i++) {
        PyObject *operand = PyList_GetItem(linker->instructions, linker->operands[i]);
        Py_XINCREF(operand);
        if (operand == NULL || PyTuple_SetItem(operands, i, operand) < 0) {
            Py_DECREF(operands);
            return NULL;
        }
    }
    return operands;
}

/* Makes the next instruction and appends it; NULL on an error, else borrowed from the list. */
static PyObject *
make_instruction(Linker *linker, const Row *row, PyObject *shape, const Fact *fact,
                 PyObject *operands, PyObject *called)
{
    Part no_payload = {row->inner.begin, row->inner.begin};
    int has_payload = fact->kind == PAYLOAD || fact->kind == PARAMETER;
    PyObject *payload = part_of(linker->object, has_payload ? row->inner : no_payload);
    PyObject *name = part_of(linker->object, row->name), *made = NULL;
    PyObject *attributes = part_of(linker->object, row->attributes);
    PyObject *index = PyLong_FromSsize_t(linker->count);
    PyObject *users = PyList_New(0), *control = PyTuple_New(0);
    if (payload != NULL && name != NULL && attributes != NULL && index != NULL && users != NULL &&
        control != NULL)
        made = PyObject_CallFunctionObjArgs(linker->make, name, shape, fact->opcode, operands,
                                            payload, attributes, linker->computation, index,
                                            called, control, users, NULL);
    if (made != NULL && PyList_Append(linker->instructions, made) == 0) {
        Py_INCREF(shape);
        Py_INCREF(users);
        linker->names[linker->count] = row->name;
        linker->shape_of[linker->count] = shape;
        linker->users_of[linker->count++] = users;
    }
    Py_XDECREF(made);
    Py_XDECREF(control);
    Py_XDECREF(users);
    Py_XDECREF(index);
    Py_XDECREF(attributes);
    Py_XDECREF(name);
    Py_XDECREF(payload);
    return PyErr_Occurred() ? NULL : made;
}

/* Adds a user to its operands, once to each that is there several times in a row. */
static int
add_user(Linker *linker, PyObject *user, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *users = linker->users_of[linker->operands[i]];
        Py_ssize_t size = PyList_Size(users);
        if (size > 0 && PyList_GetItem(users, size - 1) == user)
            continue;
        if (PyList_Append(users, user) < 0)
            return -1;
    }
    return 0;
}

/* Links a row whose operands are found: 0, or -1 and an error. */
static int
append_instruction(Linker *linker, const Row *row, PyObject *shape, const Fact *fact,
                   Py_ssize_t count)
{
    int is_unfinished = fact->kind == UNFINISHED;
    if (fact->kind == ELEMENT) {
        int takes = takes_element(linker, row->attributes);
        if (takes < 0)
            return -1;
        is_unfinished = !takes;
    }
    PyObject *called = fact->kind == FUSION ? find_fused(linker, row->attributes) : NULL;
    if (called == NULL) {
        is_unfinished |= fact->kind == FUSION;
        called = PyErr_Occurred() ? NULL : PyTuple_New(0);
    }
    PyObject *operands = called == NULL ? NULL : pack_operands(linker, count), *made = NULL;
    if (operands != NULL)
        made = make_instruction(linker, row, shape, fact, operands, called);
    Py_XDECREF(operands);
    Py_XDECREF(called);
    if (made == NULL || add_user(linker, made, count) < 0)
        return -1;
    if (fact->kind == PARAMETER && PyList_Append(linker->parameters, made) < 0)
        return -1;
    return is_unfinished ? PyList_Append(linker->unfinished, made) : 0;
}

/* Links one row: 1, 0 where Python has to look, -1 on an error. */
static int
link_row(Linker *linker, const Row *row)
{
    Py_ssize_t count = 0;
    const Fact *fact = find_fact(linker, row->opcode);
    if (fact == NULL)
        return -1;
    if (fact->kind < PLAIN || fact->kind >= UNUSUAL || (row->is_root && linker->root >= 0) ||
        may_hide_instruction(linker->text, row->inner.begin, row->attributes.end))
        return 0;
    if (fact->kind != PAYLOAD && fact->kind != PARAMETER) {
        if (reserve_operands(linker, row->inner.end - row->inner.begin) < 0)
            return -1;
        count = read_operands(linker, row->inner);
    }
    int has_count = fact->kind == ELEMENT ? count == 1 : fact->arity < 0 || count == fact->arity;
    if (count < 0 || !has_count)
        return 0;
    Kept *shape = look_up(linker, linker->kept_shapes, linker->shapes, row->shape);
    if (shape == NULL)
        return -1;
    if (row->is_root)
        linker->root = linker->count;
    if (find_name(linker, row->name, 1) != -1)
        return 0; /* defined twice, perhaps */
    return append_instruction(linker, row, shape->object, fact, count) < 0 ? -1 : 1;
}

/* Links all rows: as `link_row`. */
static int
link_rows(Linker *linker, Py_ssize_t begin, Py_ssize_t end)
{
    while (begin < end) {
        Row row;
        Py_ssize_t line_end = find_character(linker->text, begin + 1, end, '\n');
        if (!read_row(linker->text, begin + 1, line_end, &row) ||
            has_comment(linker->text, begin + 1, line_end))
            return 0;
        int status = link_row(linker, &row);
        if (status != 1)
            return status;
        begin = line_end;
    }
    return 1;
}

static Py_ssize_t
count_rows(const char *text, Py_ssize_t begin, Py_ssize_t end)
{
    Py_ssize_t count = 0;
    while ((begin = find_character(text, begin, end, '\n')) < end) {
        begin++;
        count++;
    }
    return count;
}

/* Makes room for at least one and at most MAX_ROWS rows, and the lists: 0, or -1 and an error. */
static int
prepare(Linker *linker, Py_ssize_t rows)
{
    size_t slots = 16, room = (size_t)rows;
    while (slots < 2 * room)
        slots *= 2;
    size_t kept = slots < 512 ? 8 : 512;
    size_t size = 2 * kept * sizeof(Kept) + room * (sizeof(Part) + 2 * sizeof(PyObject *)) +
                  slots * sizeof(int32_t);
    linker->memory = PyMem_Calloc(1, size);
    if (linker->memory == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    linker->kept_facts = linker->memory;
    linker->kept_shapes = linker->kept_facts + kept;
    linker->names = (Part *)(linker->kept_shapes + kept);
    linker->shape_of = (PyObject **)(linker->names + room);
    linker->users_of = linker->shape_of + room;
    linker->slots = (int32_t *)(linker->users_of + room);
    linker->kept_mask = kept - 1;
    linker->mask = slots - 1;
    linker->root = -1;
    linker->seed = (uint64_t)(uintptr_t)linker->object; /* no text can foresee it */
    linker->instructions = PyList_New(0);
    linker->parameters = PyList_New(0);
    linker->unfinished = PyList_New(0);
    linker->fused = PyList_New(0);
    return PyErr_Occurred() ? -1 : 0;
}

static void
release(Linker *linker)
{
    for (Py_ssize_t i = 0; i < linker->count; i++) {
        Py_DECREF(linker->shape_of[i]);
        Py_DECREF(linker->users_of[i]);
    }
    for (size_t i = 0; linker->memory != NULL && i <= linker->kept_mask; i++) {
        Py_XDECREF(linker->kept_facts[i].object);
        Py_XDECREF(linker->kept_shapes[i].object);
    }
    for (int i = 0; i < WORDS; i++)
        Py_XDECREF(linker->words[i]);
    PyMem_Free(linker->memory);
    PyMem_Free(linker->operands);
    Py_XDECREF(linker->instructions);
    Py_XDECREF(linker->parameters);
    Py_XDECREF(linker->unfinished);
    Py_XDECREF(linker->fused);
}

static PyObject *
pack_result(const Linker *linker)
{
    PyObject *root = Py_None;
    if (linker->root >= 0)
        root = PyList_GetItem(linker->instructions, linker->root);
    if (root == NULL)
        return NULL;
    return PyTuple_Pack(5, linker->instructions, linker->parameters, root, linker->unfinished,
                        linker->fused);
}

static PyObject *
link_body(PyObject *module, PyObject *arguments)
{
    PyObject *result = NULL;
    Py_ssize_t begin, end;
    Linker linker = {0};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "UnnO!OO!OOL", &linker.object, &begin, &end, &PyDict_Type,
                          &linker.facts, &linker.shapes, &PyDict_Type, &linker.callees,
                          &linker.make, &linker.computation, &linker.index))
        return NULL;
    linker.text = open_text(linker.object, begin, end);
    if (linker.text == NULL)
        return NULL;
    Py_ssize_t rows = count_rows(linker.text, begin, end);
    if (rows == 0 || rows > MAX_ROWS || linker.text[begin] != '\n')
        Py_RETURN_NONE;
    if (prepare(&linker, rows) == 0) {
        int status = link_rows(&linker, begin, end);
        if (status == 1)
            result = pack_result(&linker);
        else if (status == 0) {
            result = Py_None;
            Py_INCREF(result);
        }
    }
    release(&linker);
    return result;
}

static PyMethodDef methods[] = {
    {"link", link_body, METH_VARARGS, "The linked instructions of a body."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_linker", "Linked instructions, natively.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__linker(void)
{
    return PyModuleDef_Init(&definition);
}

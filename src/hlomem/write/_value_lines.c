/* The text of values, natively: what `hlomem.write.value_lines` does in Python.
 *
 *     format(values, names, readers, texts, places, layout, find_numbers) -> str
 *
 * In: values in the order of the dump, and for each its name, its readers at each of its positions
 * and the text of its instruction; `places`, a dictionary from a shape index to its text, which
 * makes what it lacks; `layout`, the texts for no uses, before and after the instruction. Where an
 * instruction has many operands, `find_numbers(user, operand)` says at which one is. Out: the text,
 * joined from pieces that were there before: names are never copied in between.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#define MANY_OPERANDS 16

/* Texts that are the same for all values. */
typedef struct {
    PyObject *positions, *indent, *newline, *uses;
    PyObject *operand[MANY_OPERANDS]; /* with their numbers */
    PyObject *any_operand;
    PyObject *no_uses, *source, *end; /* borrowed */
} Words;

typedef struct {
    PyObject *name, *shape, *is_tuple, *positions, *operands;
} Fields;

typedef struct {
    Words words;
    Fields fields;
    PyObject *places, *find_numbers; /* borrowed */
    PyObject *pieces;
} Writer;

static int
add(Writer *writer, PyObject *text)
{
    if (!PyUnicode_Check(text)) {
        PyErr_SetString(PyExc_TypeError, "a piece of text is no str");
        return -1;
    }
    return PyList_Append(writer->pieces, text);
}

static int
add_and_drop(Writer *writer, PyObject *text)
{
    if (text == NULL)
        return -1;
    int result = add(writer, text);
    Py_DECREF(text);
    return result;
}

static int
add_field(Writer *writer, PyObject *thing, PyObject *field)
{
    return add_and_drop(writer, PyObject_GetAttr(thing, field));
}

/* The text of a place in an instruction's result: NULL without an error where that is no tuple. */
static PyObject *
find_place(Writer *writer, PyObject *holder, PyObject *index)
{
    PyObject *shape = PyObject_GetAttr(holder, writer->fields.shape);
    if (shape == NULL)
        return NULL;
    PyObject *is_tuple = PyObject_GetAttr(shape, writer->fields.is_tuple);
    Py_DECREF(shape);
    if (is_tuple == NULL)
        return NULL;
    int has_parts = PyObject_IsTrue(is_tuple);
    Py_DECREF(is_tuple);
    return has_parts > 0 ? PyObject_GetItem(writer->places, index) : NULL;
}

/* The end of a line: the place, if there is one. */
static int
end_line(Writer *writer, PyObject *place)
{
    if (place != NULL && add(writer, place) < 0)
        return -1;
    return add(writer, writer->words.newline);
}

static int
add_position(Writer *writer, PyObject *holder, PyObject *place)
{
    if (add(writer, writer->words.indent) < 0)
        return -1;
    if (add_field(writer, holder, writer->fields.name) < 0)
        return -1;
    return end_line(writer, place);
}

static int
begin_use(Writer *writer, PyObject *user)
{
    if (add(writer, writer->words.indent) < 0)
        return -1;
    return add_field(writer, user, writer->fields.name);
}

/* The uses by an instruction of few operands: those that are `holder`. */
static int
add_few(Writer *writer, PyObject *user, PyObject *operands, PyObject *holder, PyObject *place)
{
    Py_ssize_t count = PyTuple_Size(operands);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyTuple_GetItem(operands, i) != holder)
            continue;
        if (begin_use(writer, user) < 0 || add(writer, writer->words.operand[i]) < 0
            || end_line(writer, place) < 0)
            return -1;
    }
    return 0;
}

static int
add_use(Writer *writer, PyObject *user, PyObject *number, PyObject *place)
{
    if (begin_use(writer, user) < 0 || add(writer, writer->words.any_operand) < 0)
        return -1;
    if (add_and_drop(writer, PyObject_Str(number)) < 0)
        return -1;
    return end_line(writer, place);
}

/* The uses by any other, by the numbers that Python finds. */
static int
add_many(Writer *writer, PyObject *user, PyObject *holder, PyObject *place)
{
    PyObject *found =
        PyObject_CallFunctionObjArgs(writer->find_numbers, user, holder, NULL);
    PyObject *numbers = found == NULL ? NULL : PySequence_Tuple(found);
    Py_XDECREF(found);
    if (numbers == NULL)
        return -1;
    int result = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(numbers) && result == 0; i++)
        result = add_use(writer, user, PyTuple_GetItem(numbers, i), place);
    Py_DECREF(numbers);
    return result;
}

static int
add_uses_by(Writer *writer, PyObject *user, PyObject *holder, PyObject *place)
{
    PyObject *operands = PyObject_GetAttr(user, writer->fields.operands);
    if (operands == NULL)
        return -1;
    int result;
    if (PyTuple_Check(operands) && PyTuple_Size(operands) < MANY_OPERANDS)
        result = add_few(writer, user, operands, holder, place);
    else
        result = add_many(writer, user, holder, place);
    Py_DECREF(operands);
    return result;
}

/* Takes a position apart; both parts are borrowed. */
static int
split_position(PyObject *position, PyObject **holder, PyObject **index)
{
    if (!PyTuple_Check(position) || PyTuple_Size(position) != 2) {
        PyErr_SetString(PyExc_TypeError, "a position is an instruction and an index");
        return -1;
    }
    *holder = PyTuple_GetItem(position, 0);
    *index = PyTuple_GetItem(position, 1);
    return 0;
}

/* One position of a value: its own line, or with `users` those of its uses. */
static int
add_at(Writer *writer, PyObject *position, PyObject *users)
{
    PyObject *holder, *index;
    if (split_position(position, &holder, &index) < 0)
        return -1;
    if (users != NULL && !PyList_Check(users)) {
        PyErr_SetString(PyExc_TypeError, "readers are lists");
        return -1;
    }
    PyObject *place = find_place(writer, holder, index);
    if (place == NULL && PyErr_Occurred())
        return -1;
    int result = 0;
    if (users == NULL)
        result = add_position(writer, holder, place);
    for (Py_ssize_t i = 0; users != NULL && i < PyList_Size(users) && result == 0; i++)
        result = add_uses_by(writer, PyList_GetItem(users, i), holder, place);
    Py_XDECREF(place);
    return result;
}

static int
add_positions(Writer *writer, PyObject *positions, PyObject *readers)
{
    if (!PyList_Check(positions) || !PyList_Check(readers)
        || PyList_Size(positions) != PyList_Size(readers)) {
        PyErr_SetString(PyExc_TypeError, "positions and readers are lists of one length");
        return -1;
    }
    if (add(writer, writer->words.positions) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyList_Size(positions); i++) {
        if (add_at(writer, PyList_GetItem(positions, i), NULL) < 0)
            return -1;
    }
    if (add(writer, writer->words.uses) < 0)
        return -1;
    Py_ssize_t before = PyList_Size(writer->pieces);
    for (Py_ssize_t i = 0; i < PyList_Size(positions) && i < PyList_Size(readers); i++) {
        if (add_at(writer, PyList_GetItem(positions, i), PyList_GetItem(readers, i)) < 0)
            return -1;
    }
    if (PyList_Size(writer->pieces) > before)
        return 0;
    return PyList_SetSlice(writer->pieces, before - 1, before, NULL) < 0
               ? -1
               : add(writer, writer->words.no_uses);
}

static int
add_value(Writer *writer, PyObject *value, PyObject *name, PyObject *readers, PyObject *text)
{
    if (add(writer, name) < 0)
        return -1;
    PyObject *positions = PyObject_GetAttr(value, writer->fields.positions);
    if (positions == NULL)
        return -1;
    int result = add_positions(writer, positions, readers);
    Py_DECREF(positions);
    if (result < 0 || add(writer, writer->words.source) < 0)
        return -1;
    return add(writer, text) < 0 ? -1 : add(writer, writer->words.end);
}

static int
make(PyObject **text, const char *characters)
{
    *text = PyUnicode_InternFromString(characters);
    return *text == NULL ? -1 : 0;
}

static int
prepare_words(Words *words)
{
    for (int i = 0; i < MANY_OPERANDS; i++) {
        words->operand[i] = PyUnicode_FromFormat(", operand %d", i);
        if (words->operand[i] == NULL)
            return -1;
    }
    if (make(&words->positions, "\n positions:\n") < 0 || make(&words->indent, "  ") < 0
        || make(&words->newline, "\n") < 0 || make(&words->uses, " uses:\n") < 0)
        return -1;
    return make(&words->any_operand, ", operand ");
}

static int
prepare_fields(Fields *fields)
{
    if (make(&fields->name, "name") < 0 || make(&fields->shape, "shape") < 0
        || make(&fields->is_tuple, "is_tuple") < 0 || make(&fields->positions, "positions") < 0)
        return -1;
    return make(&fields->operands, "operands");
}

/* Makes what is written again and again; what failed stays NULL. */
static int
prepare(Writer *writer)
{
    writer->pieces = PyList_New(0);
    if (writer->pieces == NULL || prepare_words(&writer->words) < 0)
        return -1;
    return prepare_fields(&writer->fields);
}

static void
forget(Writer *writer)
{
    Words *words = &writer->words;
    Fields *fields = &writer->fields;
    for (int i = 0; i < MANY_OPERANDS; i++)
        Py_XDECREF(words->operand[i]);
    Py_XDECREF(words->any_operand);
    Py_XDECREF(words->positions);
    Py_XDECREF(words->indent);
    Py_XDECREF(words->newline);
    Py_XDECREF(words->uses);
    Py_XDECREF(fields->name);
    Py_XDECREF(fields->shape);
    Py_XDECREF(fields->is_tuple);
    Py_XDECREF(fields->positions);
    Py_XDECREF(fields->operands);
    Py_XDECREF(writer->pieces);
}

static int
add_values(Writer *writer, PyObject *values, PyObject *names, PyObject *readers, PyObject *texts)
{
    Py_ssize_t count = PyTuple_Size(values);
    if (PyTuple_Size(names) != count || PyTuple_Size(readers) != count
        || PyTuple_Size(texts) != count) {
        PyErr_SetString(PyExc_ValueError, "there is not one of each for every value");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int result =
            add_value(writer, PyTuple_GetItem(values, i), PyTuple_GetItem(names, i),
                      PyTuple_GetItem(readers, i), PyTuple_GetItem(texts, i));
        if (result < 0)
            return -1;
    }
    return 0;
}

static PyObject *
format(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *values, *names, *readers, *texts;
    Writer writer = {0};
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O(UUU)O:format", &PyTuple_Type, &values,
                          &PyTuple_Type, &names, &PyTuple_Type, &readers, &PyTuple_Type, &texts,
                          &writer.places, &writer.words.no_uses, &writer.words.source,
                          &writer.words.end, &writer.find_numbers))
        return NULL;
    PyObject *text = NULL;
    if (prepare(&writer) == 0 && add_values(&writer, values, names, readers, texts) == 0) {
        PyObject *nothing = PyUnicode_FromString("");
        text = nothing == NULL ? NULL : PyUnicode_Join(nothing, writer.pieces);
        Py_XDECREF(nothing);
    }
    forget(&writer);
    return text;
}

static PyMethodDef methods[] = {
    {"format", format, METH_VARARGS, "The text of values, with their positions and uses."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_value_lines", "Values as text, natively.", 0, methods, NULL, NULL,
    NULL, NULL,
};

PyMODINIT_FUNC
PyInit__value_lines(void)
{
    return PyModuleDef_Init(&definition);
}

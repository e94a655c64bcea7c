/* The lines of a dump, natively: what the forms of `hlomem.dump` read, several times as fast.
 *
 *     read_values(text, start, end, has_space, says_none, Position, Use) -> (rows, place)
 *     read_allocations(text, start, end) -> (rows, place)
 *     read_sequence(text) -> names | None
 *     read_ranges(text) -> rows | None
 *
 * In: an ASCII text, or a part of it. Out: one tuple a record, as the Python module needs it,
 * and the place up to which the text was read. Only lines as XLA writes them are read: at anything
 * else (a negative number, a strange name, a cut line) reading stops before the record it is in, or
 * nothing is read, and the Python reads on or says what is wrong. So there are no errors here but
 * wrong arguments and a lack of memory.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <string.h>

#define MAX_DIGITS 18      /* of a number that fits 64 bits whatever its digits */
#define MAX_STEP_DIGITS 9  /* of a number in a shape index */
#define MAX_DEPTH 64       /* of a shape index */

/* A place in the text; what reads there moves it, and leaves it anywhere where it fails. */
typedef struct {
    const char *at, *end;
} Cursor;

typedef enum { FAILED = -1, OTHER = 0, FOUND = 1 } Outcome;

/* The fields of `<12 while.5{1} (phi) @0>`. */
typedef struct {
    PyObject *id, *name, *index, *color;
    int is_phi;
} Name;

static int
skip(Cursor *cursor, const char *literal, size_t length)
{
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, literal, length) != 0)
        return 0;
    cursor->at += length;
    return 1;
}

#define SKIP(cursor, literal) skip(cursor, literal, sizeof(literal) - 1)

static int
skip_digits(Cursor *cursor, long long *number, int most)
{
    const char *start = cursor->at;
    *number = 0;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        if (cursor->at - start == most)
            return 0;
        *number = *number * 10 + (*cursor->at++ - '0');
    }
    Py_ssize_t length = cursor->at - start;
    return length == 1 || (length > 1 && *start != '0');
}

static Outcome
read_number(Cursor *cursor, PyObject **number)
{
    long long digits;
    if (!skip_digits(cursor, &digits, MAX_DIGITS))
        return OTHER;
    *number = PyLong_FromLongLong(digits);
    return *number == NULL ? FAILED : FOUND;
}

static PyObject *
text_between(const char *start, const char *end)
{
    return PyUnicode_FromStringAndSize(start, end - start);
}

static int
is_in_name(char letter)
{
    switch (letter) {
    case '{': case '}': case '<': case '>': case ':': case ',': case '(': case ')': case '|':
        return 0;
    default:
        return letter > ' ' && letter < 127;
    }
}

static Outcome
read_word(Cursor *cursor, PyObject **word)
{
    const char *start = cursor->at;
    while (cursor->at < cursor->end && is_in_name(*cursor->at))
        cursor->at++;
    if (cursor->at == start)
        return OTHER;
    *word = text_between(start, cursor->at);
    return *word == NULL ? FAILED : FOUND;
}

/* The text up to a letter that must come before the end of the line, and the letter. */
static Outcome
read_until(Cursor *cursor, char letter, PyObject **text)
{
    const char *start = cursor->at;
    while (cursor->at < cursor->end && *cursor->at != letter && *cursor->at != '\n')
        cursor->at++;
    if (cursor->at == cursor->end || *cursor->at != letter)
        return OTHER;
    *text = text_between(start, cursor->at++);
    return *text == NULL ? FAILED : FOUND;
}

/* The rest of a line, which must not be empty. */
static Outcome
read_rest(Cursor *cursor, PyObject **text)
{
    return cursor->at < cursor->end && *cursor->at != '\n' ? read_until(cursor, '\n', text) : OTHER;
}

static PyObject *
tuple_of(const long long *numbers, int count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* A shape index in its braces. */
static Outcome
read_index(Cursor *cursor, PyObject **index)
{
    long long numbers[MAX_DEPTH];
    int count = 0;
    if (!SKIP(cursor, "{"))
        return OTHER;
    if (!SKIP(cursor, "}")) {
        do {
            if (count == MAX_DEPTH || !skip_digits(cursor, &numbers[count++], MAX_STEP_DIGITS))
                return OTHER;
        } while (SKIP(cursor, ","));
        if (!SKIP(cursor, "}"))
            return OTHER;
    }
    *index = tuple_of(numbers, count);
    return *index == NULL ? FAILED : FOUND;
}

/* A shape index where there is one, else None. */
static Outcome
read_optional_index(Cursor *cursor, PyObject **index)
{
    if (cursor->at < cursor->end && *cursor->at == '{')
        return read_index(cursor, index);
    *index = Py_NewRef(Py_None);
    return FOUND;
}

static void
clear_name(Name *name)
{
    Py_CLEAR(name->id);
    Py_CLEAR(name->name);
    Py_CLEAR(name->index);
    Py_CLEAR(name->color);
}

static Outcome
read_name(Cursor *cursor, Name *name)
{
    Outcome outcome = OTHER;
    if (!SKIP(cursor, "<") || (outcome = read_number(cursor, &name->id)) != FOUND)
        return outcome;
    if (!SKIP(cursor, " "))
        return OTHER;
    if ((outcome = read_word(cursor, &name->name)) != FOUND)
        return outcome;
    if ((outcome = read_optional_index(cursor, &name->index)) != FOUND)
        return outcome;
    name->is_phi = SKIP(cursor, " (phi)");
    if (!SKIP(cursor, " @"))
        name->color = Py_NewRef(Py_None);
    else if ((outcome = read_number(cursor, &name->color)) != FOUND)
        return outcome;
    return SKIP(cursor, ">") ? FOUND : OTHER;
}

/* Appends what a record became to a list, and lets go of it. */
static Outcome
append(PyObject *list, PyObject *item)
{
    if (item == NULL)
        return FAILED;
    int status = PyList_Append(list, item);
    Py_DECREF(item);
    return status < 0 ? FAILED : FOUND;
}

/* `  name`, `  name {1}`: where a value appears. */
static Outcome
read_position(Cursor *cursor, PyObject *class, PyObject *list)
{
    PyObject *name = NULL, *index = NULL;
    Outcome outcome = read_word(cursor, &name);
    if (outcome == FOUND && SKIP(cursor, " "))
        outcome = read_index(cursor, &index);
    if (outcome == FOUND && !SKIP(cursor, "\n"))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = append(list, PyObject_CallFunctionObjArgs(class, name, index, NULL));
    Py_XDECREF(name);
    Py_XDECREF(index);
    return outcome;
}

/* `  name, operand 0`, `  name, operand 0 {1}`: who reads a value. */
static Outcome
read_use(Cursor *cursor, PyObject *class, PyObject *list)
{
    PyObject *name = NULL, *operand = NULL, *index = NULL;
    Outcome outcome = read_word(cursor, &name);
    if (outcome == FOUND && !SKIP(cursor, ", operand "))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_number(cursor, &operand);
    if (outcome == FOUND && SKIP(cursor, " "))
        outcome = read_index(cursor, &index);
    if (outcome == FOUND && !SKIP(cursor, "\n"))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = append(list, PyObject_CallFunctionObjArgs(class, name, operand, index, NULL));
    Py_XDECREF(name);
    Py_XDECREF(operand);
    Py_XDECREF(index);
    return outcome;
}

/* The lines that begin with two spaces, each read by `read`, as a tuple. */
static Outcome
read_lines(Cursor *cursor, Outcome (*read)(Cursor *, PyObject *, PyObject *), PyObject *class,
           PyObject **tuple)
{
    PyObject *list = PyList_New(0);
    Outcome outcome = list == NULL ? FAILED : FOUND;
    while (outcome == FOUND && SKIP(cursor, "  "))
        outcome = read(cursor, class, list);
    if (outcome == FOUND && (*tuple = PyList_AsTuple(list)) == NULL)
        outcome = FAILED;
    Py_XDECREF(list);
    return outcome;
}

/* An instruction to the end of its line; an attribute may go on in lines of JSON. */
static Outcome
read_instruction(Cursor *cursor, PyObject **instruction)
{
    const char *start = cursor->at;
    if (start == cursor->end || *start != '%')
        return OTHER;
    do {
        cursor->at = memchr(cursor->at, '\n', (size_t)(cursor->end - cursor->at));
        if (cursor->at == NULL)
            return OTHER;
        cursor->at++;
    } while (cursor->at < cursor->end && (*cursor->at == '"' || *cursor->at == '}'));
    *instruction = text_between(start, cursor->at - 1);
    return *instruction == NULL ? FAILED : FOUND;
}

typedef struct {
    int has_space, says_none;
    PyObject *position, *use; /* the classes */
} Style;

static Outcome
read_uses(Cursor *cursor, const Style *style, PyObject **uses)
{
    if (!SKIP(cursor, " uses:\n"))
        return OTHER;
    if (style->says_none && SKIP(cursor, "  (none)\n")) {
        *uses = PyTuple_New(0);
        return *uses == NULL ? FAILED : FOUND;
    }
    Outcome outcome = read_lines(cursor, read_use, style->use, uses);
    if (outcome == FOUND && style->says_none && PyTuple_Size(*uses) == 0)
        return OTHER;
    return outcome;
}

/* All lines of a value, as a tuple. */
static Outcome
read_value(Cursor *cursor, const Style *style, PyObject *rows)
{
    Name name = {0};
    PyObject *positions = NULL, *uses = NULL, *instruction = NULL;
    Outcome outcome = read_name(cursor, &name);
    if (outcome == FOUND && !SKIP(cursor, "\n positions:\n"))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_lines(cursor, read_position, style->position, &positions);
    if (outcome == FOUND && PyTuple_Size(positions) == 0)
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_uses(cursor, style, &uses);
    if (outcome == FOUND && !SKIP(cursor, " from instruction:"))
        outcome = OTHER;
    if (outcome == FOUND && style->has_space && !SKIP(cursor, " "))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_instruction(cursor, &instruction);
    if (outcome == FOUND)
        outcome = append(rows, PyTuple_Pack(8, name.id, name.name, name.index,
                                            name.is_phi ? Py_True : Py_False, name.color,
                                            positions, uses, instruction));
    clear_name(&name);
    Py_XDECREF(positions);
    Py_XDECREF(uses);
    Py_XDECREF(instruction);
    return outcome;
}

/* ` value: <…> (size=8,offset=0): f32[2]{0}`: a value in an allocation. */
static Outcome
read_assigned_value(Cursor *cursor, PyObject *rows)
{
    Name name = {0};
    PyObject *size = NULL, *offset = NULL, *shape = NULL;
    Outcome outcome = read_name(cursor, &name);
    if (outcome == FOUND && !SKIP(cursor, " (size="))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_number(cursor, &size);
    if (outcome == FOUND && !SKIP(cursor, ",offset="))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_number(cursor, &offset);
    if (outcome == FOUND)
        outcome = SKIP(cursor, "): ") ? read_rest(cursor, &shape) : OTHER;
    if (outcome == FOUND)
        outcome = append(rows, PyTuple_Pack(8, name.id, name.name, name.index,
                                            name.is_phi ? Py_True : Py_False, name.color, size,
                                            offset, shape));
    clear_name(&name);
    Py_XDECREF(size);
    Py_XDECREF(offset);
    Py_XDECREF(shape);
    return outcome;
}

/* `, parameter 3, shape |f32[2]| at ShapeIndex {}` as a tuple; None where it is not there. */
static Outcome
read_parameter(Cursor *cursor, PyObject **parameter)
{
    if (!SKIP(cursor, ", parameter ")) {
        *parameter = Py_NewRef(Py_None);
        return FOUND;
    }
    PyObject *number = NULL, *shape = NULL, *index = NULL;
    Outcome outcome = read_number(cursor, &number);
    if (outcome == FOUND && !SKIP(cursor, ", shape |"))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_until(cursor, '|', &shape);
    if (outcome == FOUND && !SKIP(cursor, " at ShapeIndex "))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_index(cursor, &index);
    if (outcome == FOUND) {
        *parameter = PyTuple_Pack(3, number, shape, index);
        outcome = *parameter == NULL ? FAILED : FOUND;
    }
    Py_XDECREF(number);
    Py_XDECREF(shape);
    Py_XDECREF(index);
    return outcome;
}

/* The fields of an allocation's header, in XLA's order. */
typedef struct {
    PyObject *index, *size, *color, *page, *parameter, *output;
    int is_constant, is_thread_local, maybe_live_out, is_temp;
} Header;

static void
clear_header(Header *header)
{
    Py_CLEAR(header->index);
    Py_CLEAR(header->size);
    Py_CLEAR(header->color);
    Py_CLEAR(header->page);
    Py_CLEAR(header->parameter);
    Py_CLEAR(header->output);
}

/* A number after `title`, or `otherwise`. */
static Outcome
read_optional_number(Cursor *cursor, const char *title, PyObject *otherwise, PyObject **number)
{
    if (skip(cursor, title, strlen(title)))
        return read_number(cursor, number);
    *number = Py_NewRef(otherwise);
    return FOUND;
}

static Outcome
read_output(Cursor *cursor, PyObject **shape)
{
    if (SKIP(cursor, ", output shape is |"))
        return read_until(cursor, '|', shape);
    *shape = Py_NewRef(Py_None);
    return FOUND;
}

static Outcome
read_header(Cursor *cursor, PyObject *zero, Header *header)
{
    Outcome outcome;
    if (!SKIP(cursor, "allocation "))
        return OTHER;
    if ((outcome = read_number(cursor, &header->index)) != FOUND)
        return outcome;
    if (!SKIP(cursor, ": size "))
        return OTHER;
    if ((outcome = read_number(cursor, &header->size)) != FOUND)
        return outcome;
    if (SKIP(cursor, ", color 0"))
        return OTHER; /* XLA does not print the colour 0 */
    if ((outcome = read_optional_number(cursor, ", color ", zero, &header->color)) != FOUND)
        return outcome;
    if ((outcome = read_optional_number(cursor, ", page ", Py_None, &header->page)) != FOUND)
        return outcome;
    if ((outcome = read_parameter(cursor, &header->parameter)) != FOUND)
        return outcome;
    if ((outcome = read_output(cursor, &header->output)) != FOUND)
        return outcome;
    header->is_constant = SKIP(cursor, ", constant");
    header->is_thread_local = SKIP(cursor, ", thread-local");
    header->maybe_live_out = SKIP(cursor, ", maybe-live-out");
    header->is_temp = SKIP(cursor, ", preallocated-temp");
    return SKIP(cursor, ":\n") ? FOUND : OTHER;
}

static PyObject *
pack_allocation(const Header *header, PyObject *values)
{
    return PyTuple_Pack(11, header->index, header->size, header->color, header->page,
                        header->parameter, header->output,
                        header->is_constant ? Py_True : Py_False,
                        header->is_thread_local ? Py_True : Py_False,
                        header->maybe_live_out ? Py_True : Py_False,
                        header->is_temp ? Py_True : Py_False, values);
}

static Outcome
read_allocation(Cursor *cursor, PyObject *zero, PyObject *rows)
{
    Header header = {0};
    PyObject *values = PyList_New(0);
    Outcome outcome = values == NULL ? FAILED : read_header(cursor, zero, &header);
    while (outcome == FOUND && SKIP(cursor, " value: "))
        outcome = read_assigned_value(cursor, values);
    if (outcome == FOUND && cursor->at < cursor->end && *cursor->at != 'a')
        outcome = OTHER; /* no allocation follows: a list of values that reuse this one */
    if (outcome == FOUND)
        outcome = append(rows, pack_allocation(&header, values));
    clear_header(&header);
    Py_XDECREF(values);
    return outcome;
}

/* `    name{1}:0-5`: a live range. */
static Outcome
read_range(Cursor *cursor, PyObject *rows)
{
    PyObject *name = NULL, *index = NULL, *low = NULL, *high = NULL;
    Outcome outcome = SKIP(cursor, "    ") ? read_word(cursor, &name) : OTHER;
    if (outcome == FOUND)
        outcome = read_index(cursor, &index);
    if (outcome == FOUND && !SKIP(cursor, ":"))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_number(cursor, &low);
    if (outcome == FOUND && !SKIP(cursor, "-"))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = read_number(cursor, &high);
    if (outcome == FOUND && !SKIP(cursor, "\n"))
        outcome = OTHER;
    if (outcome == FOUND)
        outcome = append(rows, PyTuple_Pack(4, name, index, low, high));
    Py_XDECREF(name);
    Py_XDECREF(index);
    Py_XDECREF(low);
    Py_XDECREF(high);
    return outcome;
}

/* `    7:name`: the next step of the schedule. */
static Outcome
read_step(Cursor *cursor, PyObject *names)
{
    long long number;
    PyObject *name = NULL;
    if (!SKIP(cursor, "    ") || !skip_digits(cursor, &number, MAX_DIGITS))
        return OTHER;
    if (number != PyList_Size(names) || !SKIP(cursor, ":"))
        return OTHER;
    Outcome outcome = read_rest(cursor, &name);
    return outcome == FOUND ? append(names, name) : outcome;
}

/* The part of a text between two places; a reference to it is the caller's. */
static int
open_part(PyObject *text, Py_ssize_t start, Py_ssize_t end, Cursor *cursor)
{
    Py_ssize_t size;
    const char *letters = PyUnicode_AsUTF8AndSize(text, &size);
    if (letters == NULL)
        return -1;
    if (size != PyUnicode_GetLength(text) || start < 0 || start > end || end > size) {
        PyErr_SetString(PyExc_ValueError, "the text is not ASCII, or has no such part");
        return -1;
    }
    cursor->at = letters + start;
    cursor->end = letters + end;
    return 0;
}

static PyObject *
read_values(PyObject *module, PyObject *arguments)
{
    PyObject *text, *rows;
    Py_ssize_t start, end;
    Style style;
    Cursor cursor;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "UnnppOO", &text, &start, &end, &style.has_space,
                          &style.says_none, &style.position, &style.use))
        return NULL;
    if (open_part(text, start, end, &cursor) < 0 || (rows = PyList_New(0)) == NULL)
        return NULL;
    const char *place = cursor.at, *origin = cursor.at - start;
    Outcome outcome = FOUND;
    while (cursor.at < cursor.end && (outcome = read_value(&cursor, &style, rows)) == FOUND)
        place = cursor.at;
    if (outcome == FAILED) {
        Py_DECREF(rows);
        return NULL;
    }
    return Py_BuildValue("Nn", rows, (Py_ssize_t)(place - origin));
}

static PyObject *
read_allocations(PyObject *module, PyObject *arguments)
{
    PyObject *text, *rows, *zero;
    Py_ssize_t start, end;
    Cursor cursor;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Unn", &text, &start, &end))
        return NULL;
    if (open_part(text, start, end, &cursor) < 0 || (rows = PyList_New(0)) == NULL)
        return NULL;
    const char *place = cursor.at, *origin = cursor.at - start;
    zero = PyLong_FromLong(0);
    Outcome outcome = zero == NULL ? FAILED : FOUND;
    while (outcome == FOUND && cursor.at < cursor.end) {
        outcome = read_allocation(&cursor, zero, rows);
        place = outcome == FOUND ? cursor.at : place;
    }
    Py_XDECREF(zero);
    if (outcome == FAILED) {
        Py_DECREF(rows);
        return NULL;
    }
    return Py_BuildValue("Nn", rows, (Py_ssize_t)(place - origin));
}

/* Rows of lines that are all alike; None where one is not. */
static PyObject *
read_all(PyObject *arguments, Outcome (*read)(Cursor *, PyObject *))
{
    PyObject *text, *rows;
    Cursor cursor;
    if (!PyArg_ParseTuple(arguments, "U", &text))
        return NULL;
    if (open_part(text, 0, PyUnicode_GetLength(text), &cursor) < 0 || (rows = PyList_New(0)) == NULL)
        return NULL;
    Outcome outcome = FOUND;
    while (cursor.at < cursor.end && outcome == FOUND)
        outcome = read(&cursor, rows);
    if (outcome == FOUND)
        return rows;
    Py_DECREF(rows);
    if (outcome == FAILED)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
read_sequence(PyObject *module, PyObject *arguments)
{
    (void)module;
    return read_all(arguments, read_step);
}

static PyObject *
read_ranges(PyObject *module, PyObject *arguments)
{
    (void)module;
    return read_all(arguments, read_range);
}

static PyMethodDef methods[] = {
    {"read_values", read_values, METH_VARARGS, "The used values in a part of a text."},
    {"read_allocations", read_allocations, METH_VARARGS, "The allocations in a part of a text."},
    {"read_sequence", read_sequence, METH_VARARGS, "The instructions of a schedule."},
    {"read_ranges", read_ranges, METH_VARARGS, "The live ranges in a part of a text."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_lines", "The lines of a dump, natively.", 0, methods, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC
PyInit__lines(void)
{
    return PyModuleDef_Init(&definition);
}

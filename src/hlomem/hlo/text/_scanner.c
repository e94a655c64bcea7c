/* Where the parts of a module's text lie: scanner.py, reader.py and fused_bodies.py, natively.
 *
 *     computations(text, position, make) -> (list, end) | None
 *     calling_rows(text, begin, end) -> list[tuple[str, str]] | None
 *     operand_rows(text, begin, end) -> list[tuple[str, str, str]] | None
 *     body_form(text, begin, end) -> bytes | None
 *
 * In: a text of ASCII characters, and the range of a body, which begins with a line break. Out: see
 * each function; None where Python has to look.
 */

#include "rows.h"

#define MAX_DIFFERENT 64

/* computations */

typedef struct {
    int is_entry;
    Part name;
    Py_ssize_t begin, end; /* of the line; the body begins at its end */
} Head;

/* The first line of a computation: 1; 0 where there is none, -1 where Python has to look. */
static int
read_computation(const char *text, Py_ssize_t place, Py_ssize_t end, Head *head)
{
    head->begin = place;
    head->is_entry = stands_at(text, place, end, "ENTRY ", 6);
    place += head->is_entry ? 6 : 0;
    place += place < end && text[place] == '%';
    head->name.begin = place;
    place = head->name.end = skip(text, place, end, NAME);
    if (place > head->name.begin && place < end && text[place] == ' ') {
        head->end = find_character(text, place, end, '\n');
        if (head->end < end && text[head->end - 1] == '{')
            return 1;
    }
    return head->is_entry ? -1 : 0; /* it may be called `ENTRY` */
}

/* The line break before the brace that closes a body; `end` where none does. */
static Py_ssize_t
find_brace(const char *text, Py_ssize_t place, Py_ssize_t end)
{
    while ((place = find_character(text, place, end, '\n')) < end) {
        int is_more = place + 2 < end && text[place + 2] == '}'; /* closes what a tool gave */
        if (place + 1 < end && text[place + 1] == '}' && !is_more)
            return place;
        place++;
    }
    return end;
}

typedef struct {
    Part thread; /* empty at 0 where none is named */
    int has_name;
    Py_ssize_t end;
} Closing;

/* What follows the closing brace, up to what is no blank. */
static void
read_closing(const char *text, Py_ssize_t place, Py_ssize_t end, Closing *closing)
{
    static const char attribute[] = ", execution_thread=\"";
    Py_ssize_t length = (Py_ssize_t)sizeof(attribute) - 1;
    closing->thread.begin = closing->thread.end = 0;
    if (stands_at(text, place, end, attribute, length)) {
        Py_ssize_t quote = find_character(text, place + length, end, '"');
        Py_ssize_t line_end = find_character(text, place + length, quote, '\n');
        if (quote < end && line_end == quote) {
            closing->thread.begin = place + length;
            closing->thread.end = quote;
            place = quote + 1;
        }
    }
    closing->has_name = stands_at(text, place, end, " // ", 4);
    if (closing->has_name)
        place = find_character(text, place, end, '\n');
    closing->end = skip(text, place, end, BLANK);
}

/* Appends a computation to a list: 0, or -1 and an error. */
static int
append_computation(PyObject *list, PyObject *make, PyObject *object, const Head *head,
                   Py_ssize_t body_end, const Closing *closing)
{
    int status = -1;
    PyObject *name = part_of(object, head->name), *made = NULL;
    PyObject *begin = PyLong_FromSsize_t(head->begin);
    PyObject *body = Py_BuildValue("(nn)", head->end, body_end);
    PyObject *thread = closing->thread.begin ? part_of(object, closing->thread) : Py_None;
    if (name != NULL && begin != NULL && body != NULL && thread != NULL)
        made = PyObject_CallFunctionObjArgs(make, name, head->is_entry ? Py_True : Py_False, begin,
                                            body, thread,
                                            closing->has_name ? Py_True : Py_False, NULL);
    if (made != NULL)
        status = PyList_Append(list, made);
    Py_XDECREF(made);
    if (thread != Py_None)
        Py_XDECREF(thread);
    Py_XDECREF(body);
    Py_XDECREF(begin);
    Py_XDECREF(name);
    return status;
}

/* Appends all computations; the end is where the first text is that is none. As `read_computation`
 * otherwise, and -2 on an error. */
static int
append_computations(PyObject *list, PyObject *make, PyObject *object, const char *text,
                    Py_ssize_t *place, Py_ssize_t end)
{
    Head head;
    Py_ssize_t first = *place;
    while (first < end && text[first] == '\n')
        first++;
    int found = read_computation(text, first, end, &head);
    while (found == 1) {
        Closing closing;
        Py_ssize_t body_end = find_brace(text, head.end, end);
        *place = head.begin;
        if (body_end == end)
            return 0;
        read_closing(text, body_end + 2, end, &closing);
        if (append_computation(list, make, object, &head, body_end, &closing) < 0)
            return -2;
        *place = closing.end;
        found = read_computation(text, closing.end, end, &head);
    }
    return found;
}

static PyObject *
computations(PyObject *module, PyObject *arguments)
{
    PyObject *object, *make;
    Py_ssize_t place;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "UnO", &object, &place, &make))
        return NULL;
    Py_ssize_t end = PyUnicode_GetLength(object);
    const char *text = open_text(object, place, end);
    PyObject *list = text == NULL ? NULL : PyList_New(0);
    if (list == NULL)
        return NULL;
    int found = append_computations(list, make, object, text, &place, end);
    if (found == 0)
        return Py_BuildValue("(Nn)", list, place);
    Py_DECREF(list);
    if (found == -2)
        return NULL;
    Py_RETURN_NONE;
}

/* Bodies of fusions */

/* A text that is being read, and the list that is made of its lines. */
typedef struct {
    PyObject *object, *list;
    const char *text;
} Reading;

typedef int (*Visit)(Reading *reading, Py_ssize_t begin, Py_ssize_t end);

/* Visits every line of a body: 1, 0 as soon as a visit says that Python has to look, -1 on an
 * error. */
static int
visit_lines(Reading *reading, Py_ssize_t begin, Py_ssize_t end, Visit visit)
{
    int status = begin == end || reading->text[begin] == '\n';
    while (status == 1 && begin < end) {
        Py_ssize_t line_end = find_character(reading->text, begin + 1, end, '\n');
        status = visit(reading, begin + 1, line_end);
        begin = line_end;
    }
    return status;
}

/* The list that a visit makes of all lines of a body, None where Python has to look. */
static PyObject *
list_lines(PyObject *arguments, Visit visit)
{
    Reading reading;
    Py_ssize_t begin, end;
    if (!PyArg_ParseTuple(arguments, "Unn", &reading.object, &begin, &end))
        return NULL;
    reading.text = open_text(reading.object, begin, end);
    reading.list = reading.text == NULL ? NULL : PyList_New(0);
    if (reading.list == NULL)
        return NULL;
    int status = visit_lines(&reading, begin, end, visit);
    if (status == 1)
        return reading.list;
    Py_DECREF(reading.list);
    if (status < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Appends a tuple of texts: 1, or -1 and an error. */
static int
append_texts(Reading *reading, const Part *parts, Py_ssize_t count)
{
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = part_of(reading->object, parts[i]);
        if (item == NULL || PyTuple_SetItem(tuple, i, item) < 0) {
            Py_DECREF(tuple);
            return -1;
        }
    }
    int status = PyList_Append(reading->list, tuple);
    Py_DECREF(tuple);
    return status < 0 ? -1 : 1;
}

/* Whether brackets have none inside. */
static int
is_flat(const char *text, Part brackets)
{
    Py_ssize_t begin = brackets.begin + 1, end = brackets.end - 1;
    return find_character(text, begin, end, '(') == end &&
           find_character(text, begin, end, ')') == end;
}

/* Name, opcode and operands, of rows without brackets in these. */
static int
visit_operands(Reading *reading, Py_ssize_t begin, Py_ssize_t end)
{
    const char *text = reading->text;
    Row row;
    if (!read_head(text, begin, end, &row))
        return 0;
    row.inner.begin = row.opcode.end + 1;
    row.inner.end = find_character(text, row.inner.begin, end, ')');
    if (row.inner.end == end ||
        find_character(text, row.inner.begin, row.inner.end, '(') < row.inner.end)
        return 0;
    if (text[row.shape.begin] == '(' && !is_flat(text, row.shape))
        return 0;
    Part parts[] = {row.name, row.opcode, row.inner};
    return append_texts(reading, parts, 3);
}

static PyObject *
operand_rows(PyObject *module, PyObject *arguments)
{
    (void)module;
    return list_lines(arguments, visit_operands);
}

static const char *const calling[] = {
    "calls", "to_apply", "body", "condition", "branch_computations", "true_computation",
    "false_computation", "called_computations", "select", "scatter", NULL,
};

/* Behind a comma, an attribute that calls computations: 1, 0 where it is none, -1 where blanks
 * other than XLA's are about it. */
static int
names_callee(const char *text, Py_ssize_t place, Py_ssize_t end)
{
    int is_plain = place + 1 < end && text[place] == ' ' && !is(text[place + 1], BLANK);
    Py_ssize_t begin = place = skip(text, place, end, BLANK);
    while (place < end && (is(text[place], LOWER) || text[place] == '_'))
        place++;
    if (place == end)
        return -1; /* it may go on in the next line */
    if (text[place] != '=' && !is(text[place], BLANK))
        return 0;
    for (const char *const *name = calling; *name != NULL; name++)
        if ((Py_ssize_t)strlen(*name) == place - begin &&
            memcmp(text + begin, *name, (size_t)(place - begin)) == 0)
            return is_plain && text[place] == '=' ? 1 : -1;
    return 0;
}

/* Opcode and attributes, of rows that call computations. */
static int
visit_call(Reading *reading, Py_ssize_t begin, Py_ssize_t end)
{
    const char *text = reading->text;
    for (Py_ssize_t place = begin; (place = find_character(text, place, end, ',')) < end;) {
        int found = names_callee(text, ++place, end);
        if (found < 0)
            return 0;
        if (found) {
            Row row;
            if (!read_row(text, begin, end, &row) || has_comment(text, begin, end))
                return 0;
            Part parts[] = {row.opcode, row.attributes};
            return append_texts(reading, parts, 2);
        }
    }
    return 1;
}

static PyObject *
calling_rows(PyObject *module, PyObject *arguments)
{
    (void)module;
    return list_lines(arguments, visit_call);
}

typedef struct {
    Part opcode;
    uint32_t count;
} Counted;

/* The opcode of a line whose result is an array, as the pattern of fused_bodies.py finds it; 0 where
 * that is not plain. */
static int
read_array_opcode(const char *text, Py_ssize_t place, Py_ssize_t end, Part *opcode)
{
    if (!stands_at(text, place, end, "  ", 2))
        return 0;
    place += 2;
    place += stands_at(text, place, end, "ROOT ", 5) ? 5 : 0;
    Py_ssize_t name_end = find_character(text, place, end, ' ');
    if (name_end == place || !stands_at(text, name_end, end, " = ", 3))
        return 0;
    place = name_end + 3;
    if (place == end || text[place] == '(' || is(text[place], BLANK))
        return 0;
    return read_opcode(text, find_character(text, place, end, ' '), end, opcode);
}

/* How many instructions have which opcode, in order of appearance: the number of different ones,
 * -1 where they are too many or Python has to look. */
static int
count_opcodes(const char *text, Py_ssize_t begin, Py_ssize_t end, Counted *counted)
{
    int different = 0;
    while (begin < end) {
        Part opcode;
        Py_ssize_t line_end = find_character(text, begin + 1, end, '\n');
        int i = 0;
        if (!read_array_opcode(text, begin + 1, line_end, &opcode))
            return -1;
        while (i < different && !is_same(text, counted[i].opcode, opcode))
            i++;
        if (i == different) {
            if (different == MAX_DIFFERENT)
                return -1;
            counted[different++] = (Counted){opcode, 0};
        }
        counted[i].count++;
        begin = line_end;
    }
    return different;
}

/* A key that bodies with the same opcodes, each as often, share; None for others than arrays. */
static PyObject *
body_form(PyObject *module, PyObject *arguments)
{
    PyObject *object;
    Py_ssize_t begin, end, size = 0;
    Counted counted[MAX_DIFFERENT];
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Unn", &object, &begin, &end))
        return NULL;
    const char *text = open_text(object, begin, end);
    if (text == NULL)
        return NULL;
    if (begin == end || text[begin] != '\n' || end - begin > UINT32_MAX ||
        find_character(text, begin, end, '#') < end)
        Py_RETURN_NONE;
    int different = count_opcodes(text, begin, end, counted);
    if (different < 0)
        Py_RETURN_NONE;
    for (int i = 0; i < different; i++)
        size += counted[i].opcode.end - counted[i].opcode.begin + 1 + (Py_ssize_t)sizeof(uint32_t);
    PyObject *form = PyBytes_FromStringAndSize(NULL, size);
    char *to = form == NULL ? NULL : PyBytes_AsString(form);
    if (to == NULL)
        return NULL;
    for (int i = 0; i < different; i++) {
        Py_ssize_t length = counted[i].opcode.end - counted[i].opcode.begin + 1;
        memcpy(to, text + counted[i].opcode.begin, (size_t)length); /* with its bracket */
        memcpy(to + length, &counted[i].count, sizeof(uint32_t));
        to += length + (Py_ssize_t)sizeof(uint32_t);
    }
    return form;
}

static PyMethodDef methods[] = {
    {"computations", computations, METH_VARARGS, "The computations of a text."},
    {"calling_rows", calling_rows, METH_VARARGS, "Opcode and attributes of what calls."},
    {"operand_rows", operand_rows, METH_VARARGS, "Name, opcode and operands of all rows."},
    {"body_form", body_form, METH_VARARGS, "A key for the opcodes of a body."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_scanner", "Lines of HLO, natively.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__scanner(void)
{
    return PyModuleDef_Init(&definition);
}

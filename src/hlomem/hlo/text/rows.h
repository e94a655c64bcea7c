/* The lines of a module's text, for the kernels in this folder: a line in, its parts out.
 *
 * Only texts of ASCII characters are read, whose bytes are their characters, and only lines in the
 * plain form in which XLA prints an instruction. Such a line gives what the pattern `_INSTRUCTION`
 * of scanner.py gives; of any other line nothing is said, and the caller leaves it to Python.
 * Nothing is read outside of the range that was asked for.
 */

#ifndef HLOMEM_ROWS_H
#define HLOMEM_ROWS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <string.h>

typedef struct {
    Py_ssize_t begin, end;
} Part;

typedef struct {
    int is_root;
    Part name, shape, opcode, inner, attributes;
} Row;

enum { LOWER = 1, LETTER = 2, DIGIT = 4, WORD = 8, NAME = 16, BLANK = 32 };

/* The kinds of each ASCII character: `[a-z]`, `[A-Za-z_]`, `[0-9]`, `[\w\-]`, `[\w.\-]`, `\s`. */
static const unsigned char kinds[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 32, 32, 32, 32, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24, 16, 0,
    28, 28, 28, 28, 28, 28, 28, 28, 28, 28, 0, 0, 0, 0, 0, 0,
    0, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26,
    26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 0, 0, 0, 0, 26,
    0, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27,
    27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 0, 0, 0, 0, 0,
};

/* Whether a character, of which all bytes of an ASCII text are one, is of a kind. */
static inline int
is(char c, int kind)
{
    return kinds[c & 127] & kind;
}

/* The end of the characters of a kind that begin at a place. */
static inline Py_ssize_t
skip(const char *text, Py_ssize_t place, Py_ssize_t end, int kind)
{
    while (place < end && is(text[place], kind))
        place++;
    return place;
}

/* Whether a text stands at a place, all of it before `end`. */
static inline int
stands_at(const char *text, Py_ssize_t place, Py_ssize_t end, const char *what, Py_ssize_t length)
{
    return end - place >= length && memcmp(text + place, what, (size_t)length) == 0;
}

/* The first place of a character from `place` to before `end`; `end` where there is none. */
static inline Py_ssize_t
find_character(const char *text, Py_ssize_t place, Py_ssize_t end, char what)
{
    const char *found = place < end ? memchr(text + place, what, (size_t)(end - place)) : NULL;
    return found == NULL ? end : found - text;
}

static inline int
is_same(const char *text, Part one, Part other)
{
    Py_ssize_t length = one.end - one.begin;
    return other.end - other.begin == length &&
           memcmp(text + one.begin, text + other.begin, (size_t)length) == 0;
}

/* Whether a line has a comment, `//` outside of strings; as `has_comment` of scanner.py. */
static inline int
has_comment(const char *text, Py_ssize_t place, Py_ssize_t end)
{
    Py_ssize_t slash = place;
    while ((slash = find_character(text, slash, end, '/')) < end)
        if (++slash < end && text[slash] == '/')
            break;
    if (slash >= end)
        return 0;
    for (; place < end; place++) {
        if (stands_at(text, place, end, "//", 2))
            return 1;
        if (text[place] == '"') {
            for (place++; place < end && text[place] != '"'; place++)
                place += text[place] == '\\';
            if (place >= end)
                return 0; /* what follows an open string is no comment */
        }
    }
    return 0;
}

/* ` opcode(`: the opcode, and 1; 0 where that does not stand there. */
static inline int
read_opcode(const char *text, Py_ssize_t place, Py_ssize_t end, Part *opcode)
{
    if (end - place < 3 || text[place] != ' ' || !is(text[place + 1], LOWER))
        return 0;
    opcode->begin = place + 1;
    opcode->end = skip(text, place + 1, end, WORD);
    return opcode->end < end && text[opcode->end] == '(';
}

/* The shape of an array, or of a tuple up to the first `)` that an opcode follows. */
static inline int
read_shape(const char *text, Py_ssize_t place, Py_ssize_t end, Row *row)
{
    row->shape.begin = place;
    if (place < end && text[place] == '(') {
        while ((place = find_character(text, place, end, ')')) < end) {
            row->shape.end = ++place;
            if (read_opcode(text, place, end, &row->opcode))
                return 1;
        }
        return 0;
    }
    while (place < end && !is(text[place], BLANK))
        place++;
    row->shape.end = place;
    return place > row->shape.begin && read_opcode(text, place, end, &row->opcode);
}

/* Up to the opcode. */
static inline int
read_head(const char *text, Py_ssize_t place, Py_ssize_t end, Row *row)
{
    if (!stands_at(text, place, end, "  ", 2))
        return 0;
    place += 2;
    row->is_root = stands_at(text, place, end, "ROOT ", 5);
    place += row->is_root ? 5 : 0;
    place += place < end && text[place] == '%';
    row->name.begin = place;
    row->name.end = skip(text, place, end, NAME);
    if (row->name.end == place || !stands_at(text, row->name.end, end, " = ", 3))
        return 0;
    return read_shape(text, row->name.end + 3, end, row);
}

/* Whether the line ends here, or `, name=` follows. */
static inline int
may_end_operands(const char *text, Py_ssize_t place, Py_ssize_t end)
{
    if (place == end)
        return 1;
    if (end - place < 4 || text[place] != ',' || text[place + 1] != ' ' ||
        !is(text[place + 2], LETTER))
        return 0;
    place = skip(text, place + 2, end, WORD);
    return place < end && text[place] == '=';
}

/* A whole line; 0 where it is not in the plain form. */
static inline int
read_row(const char *text, Py_ssize_t place, Py_ssize_t end, Row *row)
{
    if (!read_head(text, place, end, row))
        return 0;
    place = row->inner.begin = row->opcode.end + 1;
    while ((place = find_character(text, place, end, ')')) < end) {
        row->inner.end = place++;
        if (may_end_operands(text, place, end)) {
            row->attributes.begin = place;
            row->attributes.end = end;
            return 1;
        }
    }
    return 0;
}

static inline PyObject *
part_of(PyObject *text, Part part)
{
    return PyUnicode_Substring(text, part.begin, part.end);
}

/* The bytes of a text, if they are its characters and hold the range; else NULL and an error. */
static inline const char *
open_text(PyObject *object, Py_ssize_t begin, Py_ssize_t end)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == NULL)
        return NULL;
    if (size != PyUnicode_GetLength(object) || begin < 0 || begin > end || end > size) {
        PyErr_SetString(PyExc_ValueError, "a text that is not ASCII, or a range outside of it");
        return NULL;
    }
    return text;
}

#endif

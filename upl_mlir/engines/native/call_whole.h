/* Calls of a Python function like an earlier call: from the tuple of its arguments to its result, without Python code between.

   Arguments and results are trees of tuples, lists and dictionaries.  Included by call.c, behind call_again.h, of which it uses
   Again, alike, give and serve. */

enum { LEAF, NOTHING, TUPLE, LIST, DICT };

/* Of arguments: what is looked for.  Of a result: what is made. */
typedef struct Tree {
    int what;
    int place;     /* of a leaf: the input that it is, -1 where the kernel needs it not; or the output */
    Place like;    /* of an array that the kernel needs not, or converted: type and shape */
    int64_t into;  /* of an array that is converted: where in `converted`; else -1 */
    PyObject *type; /* of a branch (its very type, as named tuples are tuples), or of a leaf that is a number, else NULL */
    PyObject *keys; /* of a dictionary: a tuple of strings, in its order */
    int count;
    struct Tree *parts;
} Tree;

typedef struct {
    PyObject_HEAD
    Again *again;
    Tree arguments, result;
    PyObject *constants; /* arrays by place, which are inputs beside the arguments: ((place, array), ...) */
    int64_t *slots;      /* with their addresses */
    int fault;           /* the output that says that something went wrong, or -1 */
    char *converted;     /* room for arrays of the kernel's type, if there are others among the arguments */
    int64_t room;
    int busy;            /* a call is using it */
} Whole;

#define CONVERT(FROM, TO) for (int64_t i = 0; i < count; i++) ((TO *)to)[i] = (TO)((const FROM *)from)[i]

/* Numbers of one type as those of another, by numpy's rules for whole numbers and reals. */
HOT static void convert(char kind, const void *from, char real, void *to, int64_t count) {
    if (real == 'd') {
        if (kind == 'q') CONVERT(int64_t, double);
        else if (kind == 'i') CONVERT(int32_t, double);
        else if (kind == 'f') CONVERT(float, double);
        else CONVERT(int8_t, double);
    } else {
        if (kind == 'q') CONVERT(int64_t, float);
        else if (kind == 'i') CONVERT(int32_t, float);
        else if (kind == 'd') CONVERT(double, float);
        else CONVERT(int8_t, float);
    }
}

/* What a call holds while it runs. */
typedef struct {
    Whole *w;
    int64_t slots[MAX_SLOTS];
    double numbers[MAX_CELLS];
    PyObject *held[MAX_CELLS];
    int count;
} Given;

/* Finds the inputs in an argument.  Returns 0, 1 for one that differs, or -1 with an exception set. */
HOT static int find(const Tree *t, PyObject *found, Given *given) {
    if (t->what == LEAF) {
        const Place *p = t->place < 0 ? &t->like : &given->w->again->places[t->place];
        if (t->type) {
            if ((PyObject *)Py_TYPE(found) != t->type) return 1;
            if (t->place < 0) return 0;
            double x = PyFloat_AS_DOUBLE(found), *number = &given->numbers[t->place];
            if (p->kind == 'd') *number = x;
            else *(float *)number = (float)x;
            given->slots[p->slot] = (int64_t)(intptr_t)number;
            return 0;
        }
        if (!PyArray_CheckExact(found)) return 1;
        if (t->place < 0) return !alike(p, (PyArrayObject *)found);
        if (t->into >= 0) {
            if (!alike(&t->like, (PyArrayObject *)found)) return 1;
            char *to = given->w->converted + t->into;
            convert(t->like.kind, PyArray_DATA((PyArrayObject *)found), p->kind, to, PyArray_SIZE((PyArrayObject *)found));
            given->slots[p->slot] = (int64_t)(intptr_t)to;
            return 0;
        }
        if (given->count >= MAX_CELLS) return 1;
        int differs = give(p, found, given->slots, NULL);
        if (!differs) given->held[given->count++] = Py_NewRef(found); /* others may run meanwhile */
        return differs;
    }
    if (t->what == NOTHING) return found != Py_None;
    if ((PyObject *)Py_TYPE(found) != t->type) return 1;
    if (t->what == DICT) {
        if (PyDict_GET_SIZE(found) != t->count) return 1;
        Py_ssize_t at = 0;
        PyObject *key, *value;
        for (int i = 0; PyDict_Next(found, &at, &key, &value); i++) {
            PyObject *wanted = PyTuple_GET_ITEM(t->keys, i);
            if (key != wanted && !(PyUnicode_CheckExact(key) && !PyUnicode_Compare(key, wanted))) return 1;
            int differs = find(&t->parts[i], value, given);
            if (differs) return differs;
        }
        return 0;
    }
    if ((t->what == TUPLE ? PyTuple_GET_SIZE(found) : PyList_GET_SIZE(found)) != t->count) return 1;
    for (int i = 0; i < t->count; i++) {
        int differs = find(&t->parts[i], t->what == TUPLE ? PyTuple_GET_ITEM(found, i) : PyList_GET_ITEM(found, i), given);
        if (differs) return differs;
    }
    return 0;
}

/* A result of the arrays that were made; NULL with an exception set. */
HOT static PyObject *shaped(const Tree *t, PyObject **made) {
    if (t->what == NOTHING) return Py_NewRef(Py_None);
    if (t->what == LEAF) {
        PyArrayObject *array = (PyArrayObject *)made[t->place];
        if (PyArray_NDIM(array)) return Py_NewRef(array);
        return PyArray_Scalar(PyArray_DATA(array), PyArray_DESCR(array), NULL);
    }
    PyObject *out = t->what == TUPLE ? PyTuple_New(t->count) : t->what == LIST ? PyList_New(t->count) : PyDict_New();
    for (int i = 0; out && i < t->count; i++) {
        PyObject *part = shaped(&t->parts[i], made);
        if (!part) Py_CLEAR(out);
        else if (t->what == TUPLE) PyTuple_SET_ITEM(out, i, part);
        else if (t->what == LIST) PyList_SET_ITEM(out, i, part);
        else {
            if (PyDict_SetItem(out, PyTuple_GET_ITEM(t->keys, i), part)) Py_CLEAR(out);
            Py_DECREF(part);
        }
    }
    if (out && t->what == TUPLE && t->type != (PyObject *)&PyTuple_Type) Py_SETREF(out, PyObject_CallObject(t->type, out));
    return out;
}

/* whole(arguments, a tuple) -> the result, or NotImplemented for a call that differs or in which something goes wrong. */
HOT static PyObject *call_whole(PyObject *self, PyObject *arguments) {
    Whole *w = (Whole *)self;
    Again *g = w->again;
    Given given;
    PyObject *made[MAX_CELLS], *result = NULL;
    int64_t status = 0;
    if (w->busy) Py_RETURN_NOTIMPLEMENTED;
    w->busy = w->room > 0;
    given.w = w;
    given.count = 0;
    memset(made, 0, (size_t)g->made * sizeof *made);
    memcpy(given.slots, w->slots, (size_t)g->kernel->slots * sizeof *given.slots);
    int differs = find(&w->arguments, arguments, &given);
    if (!differs) differs = serve(g, given.slots, NULL, made, &status);
    if (!differs && (status || (w->fault >= 0 && *(char *)PyArray_DATA((PyArrayObject *)made[w->fault])))) differs = 1;
    if (!differs) result = shaped(&w->result, made);
    w->busy = 0;
    while (given.count) Py_DECREF(given.held[--given.count]);
    for (int i = 0; i < g->made; i++) Py_XDECREF(made[i]);
    return differs == 1 ? Py_NewRef(Py_NotImplemented) : result;
}

static void tree_free(Tree *t) {
    for (int i = 0; t->parts && i < t->count; i++) tree_free(&t->parts[i]);
    free(t->parts);
    free(t->like.shape);
    Py_XDECREF(t->type);
    Py_XDECREF(t->keys);
}

static void whole_dealloc(PyObject *self) {
    Whole *w = (Whole *)self;
    PyObject_GC_UnTrack(self);
    tree_free(&w->arguments);
    tree_free(&w->result);
    free(w->slots);
    free(w->converted);
    Py_XDECREF(w->constants);
    Py_XDECREF(w->again);
    Py_TYPE(self)->tp_free(self);
}

static int whole_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((Whole *)self)->again);
    return 0;
}

static PyTypeObject WholeType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "upl_mlir.engines.native.CallWhole",
    .tp_doc = "Calls of a function like an earlier one; see call_whole.h.",
    .tp_basicsize = sizeof(Whole),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = whole_dealloc,
    .tp_traverse = whole_traverse,
};

static PyMethodDef whole_method = {
    "whole", (PyCFunction)call_whole, METH_O, "The tuple of a function's arguments; its result, or NotImplemented.",
};

/* A tree from (place, type, kind, shape) of a leaf, None, or (type, keys, parts) of a branch; 0 on success.  `places` is how
   many inputs, or outputs, there are. */
static int tree_from(Tree *t, PyObject *from, int places) {
    t->into = -1;
    if (from == Py_None) {
        t->what = NOTHING;
        return 0;
    }
    if (!PyTuple_Check(from)) return 1;
    if (PyTuple_GET_SIZE(from) == 4) {
        PyObject *shape;
        int kind;
        if (!PyArg_ParseTuple(from, "iOCO!", &t->place, &t->type, &kind, &PyTuple_Type, &shape)) return 1;
        t->type = t->type == Py_None ? NULL : Py_NewRef(t->type);
        t->like.kind = (char)kind;
        t->like.rank = (int)PyTuple_GET_SIZE(shape);
        t->like.shape = calloc(t->like.rank ? (size_t)t->like.rank : 1, sizeof *t->like.shape);
        for (int d = 0; t->like.shape && d < t->like.rank; d++) t->like.shape[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d));
        return !t->like.shape || t->place >= places || PyErr_Occurred();
    }
    PyObject *type, *keys, *parts;
    if (!PyArg_ParseTuple(from, "O!OO!", &PyType_Type, &type, &keys, &PyTuple_Type, &parts)) return 1;
    t->type = Py_NewRef(type);
    t->keys = keys == Py_None ? NULL : Py_NewRef(keys);
    t->what = PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type) ? TUPLE : t->keys ? DICT : LIST;
    t->count = (int)PyTuple_GET_SIZE(parts);
    if (t->what == DICT && (!PyTuple_Check(keys) || PyTuple_GET_SIZE(keys) != t->count)) return 1;
    t->parts = calloc(t->count ? (size_t)t->count : 1, sizeof *t->parts);
    for (int i = 0; t->parts && i < t->count; i++)
        if (tree_from(&t->parts[i], PyTuple_GET_ITEM(parts, i), places)) return 1;
    return !t->parts;
}

/* Finds room for the arrays among arguments that are not of the kernel's type; 0 on success. */
static int room_for(Whole *w, Tree *t) {
    for (int i = 0; i < t->count; i++)
        if (room_for(w, &t->parts[i])) return 1;
    if (t->what != LEAF || t->place < 0) return 0;
    char kind = w->again->places[t->place].kind;
    if (kind == t->like.kind) return 0;
    if (kind != 'd' && kind != 'f') return 1;
    if (t->type) return 0;
    t->into = w->room;
    w->room += (w->again->places[t->place].bytes / ALIGNMENT + 1) * ALIGNMENT;
    return 0;
}

/* whole(again, arguments, constants, result, fault) -> the function `call_whole`, or None for what it cannot do.  `arguments`
   and `result` are trees as `tree_from` takes them, `constants` arrays by the places of inputs, `fault` the place of an
   output, or -1. */
static PyObject *make_whole(PyObject *module, PyObject *args) {
    (void)module;
    Again *g;
    PyObject *arguments, *constants, *result;
    int fault;
    if (!PyArg_ParseTuple(args, "O!OO!Oi", &AgainType, &g, &arguments, &PyTuple_Type, &constants, &result, &fault)) return NULL;
    Whole *w = PyObject_GC_New(Whole, &WholeType);
    if (!w) return NULL;
    memset((char *)w + sizeof(PyObject), 0, sizeof *w - sizeof(PyObject));
    w->again = (Again *)Py_NewRef(g);
    w->constants = Py_NewRef(constants);
    w->fault = fault;
    w->slots = calloc((size_t)g->kernel->slots, sizeof *w->slots);
    PyObject_GC_Track((PyObject *)w);
    if (!w->slots) goto end;
    memcpy(w->slots, g->slots, (size_t)g->kernel->slots * sizeof *w->slots);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++) {
        int place;
        PyObject *array;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(constants, i), "iO!", &place, &PyArray_Type, &array)) goto end;
        if (place < 0 || place >= g->given || give(&g->places[place], array, w->slots, NULL)) goto end;
    }
    char bit = fault < 0 || fault >= g->made ? '?' : g->kernel->formals[g->kernel->count - 1 - g->made + fault].kind;
    if (bit == '?' && fault < g->made && !tree_from(&w->arguments, arguments, g->given) && !tree_from(&w->result, result, g->made)) {
        if (room_for(w, &w->arguments) || (w->room && !(w->converted = new_workspace(w->room)))) goto end;
        PyObject *function = PyCFunction_New(&whole_method, (PyObject *)w);
        Py_DECREF(w);
        return function;
    }
end:
    Py_DECREF(w);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

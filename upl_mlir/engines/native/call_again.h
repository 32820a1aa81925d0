/* Calls with arrays like those of an earlier call: sizes and slots are known, only addresses change.

   Included by call.c, of which it uses Kernel, Formal, run_timed, put and item_size, behind call_memory.h. */

typedef struct {
    PyObject *name;
    PyArray_Descr *descr; /* of an output; NULL: an input */
    char kind;            /* see Formal */
    int slot;             /* that takes the address */
    int rank;
    npy_intp *shape;
    int64_t bytes;
    PyObject *earlier[2]; /* small results of earlier calls; one that nobody else has any more becomes a result again */
    int oldest;
} Place;

typedef struct {
    PyObject_HEAD
    Kernel *kernel;
    int given, made, status; /* inputs, outputs, the slot that takes the address of the status */
    int64_t size;            /* see call_arrays */
    int large;               /* some result is of POOLED_BYTES or more */
    int64_t nanoseconds;     /* that the last call took */
    int64_t *slots;          /* with everything but addresses */
    Place *places;           /* inputs, then outputs */
    PyObject *names;         /* {output: None} in their order, of which the results are a copy */
} Again;

/* Whether an array can be used in place: of the type, shape and layout that the earlier one had. */
static inline int alike(const Place *p, PyArrayObject *array) {
    char kind = PyArray_DESCR(array)->kind, wanted = p->kind == 'd' || p->kind == 'f' ? 'f' : p->kind == '?' ? 'b' : 'i';
    if (kind != wanted || PyArray_ITEMSIZE(array) != item_size(p->kind) || PyArray_NDIM(array) != p->rank) return 0;
    if (!PyArray_ISCARRAY_RO(array)) return 0; /* contiguous, aligned, of this machine's order of bytes */
    const npy_intp *shape = PyArray_DIMS(array);
    for (int d = 0; d < p->rank; d++)
        if (shape[d] != p->shape[d]) return 0;
    return 1;
}

/* Whether nobody but its place has an array, and it is as it was when it was made. */
static inline int forgotten(const Place *p, PyObject *array) {
#ifdef Py_GIL_DISABLED
    return 0; /* counts of references are not exact */
#else
    PyArrayObject_fields *a = (PyArrayObject_fields *)array;
    return array && Py_REFCNT(array) == 1 && !a->weakreflist && !a->base && a->descr == p->descr &&
           PyArray_CHKFLAGS((PyArrayObject *)array, NPY_ARRAY_OWNDATA | NPY_ARRAY_WRITEABLE) && alike(p, (PyArrayObject *)array);
#endif
}

/* The array of an output: the caller's, or a new one; NULL for one that does not fit (or with an exception set). */
static PyObject *result_of(Place *p, PyObject *out) {
    PyObject *mine = out ? PyDict_GetItemWithError(out, p->name) : NULL;
    if (mine) {
        PyArrayObject *array = (PyArrayObject *)mine;
        return PyArray_CheckExact(mine) && alike(p, array) && PyArray_ISWRITEABLE(array) ? Py_NewRef(mine) : NULL;
    }
    for (int i = 0; i < 2; i++)
        if (forgotten(p, p->earlier[i])) return Py_NewRef(p->earlier[i]);
    Py_INCREF(p->descr); /* the array takes it */
    PyObject *made = PyArray_NewFromDescr(&PyArray_Type, p->descr, p->rank, p->shape, NULL, NULL, 0, NULL);
    if (made && p->bytes < (int64_t)POOLED_BYTES) { /* larger ones get memory of the pool */
        Py_XSETREF(p->earlier[p->oldest], Py_NewRef(made));
        p->oldest ^= 1;
    }
    return made;
}

/* Whether an output of the caller's shares memory with another argument. */
static int overlapping(const Again *g, const int64_t *slots) {
    for (int i = g->given; i < g->given + g->made; i++)
        for (int j = 0; j < i; j++) {
            const Place *p = &g->places[i], *q = &g->places[j];
            if (slots[p->slot] < slots[q->slot] + q->bytes && slots[q->slot] < slots[p->slot] + p->bytes) return 1;
        }
    return 0;
}

/* Makes the results in `made` (each NULL before) and runs; `slots` have the addresses of the inputs.  Returns 0, 1 for a call
   that differs, or -1 with an exception set; where arrays were made, the caller has them in any case. */
HOT static int serve(Again *g, int64_t *slots, PyObject *out, PyObject **made, int64_t *status) {
    int64_t found_out = 0;
    int answer = -1;
    PyObject *before = NULL;
    if (g->large && !(before = PyDataMem_SetHandler(block_capsule))) return -1;
    for (int i = 0; i < g->made; i++) {
        Place *p = &g->places[g->given + i];
        if (!(made[i] = result_of(p, out))) {
            answer = PyErr_Occurred() ? -1 : 1;
            goto end;
        }
        slots[p->slot] = (int64_t)(intptr_t)PyArray_DATA((PyArrayObject *)made[i]);
        found_out += out && PyDict_GetItemWithError(out, p->name) == made[i];
    }
    if (out && (found_out != PyDict_GET_SIZE(out) || overlapping(g, slots))) {
        answer = PyErr_Occurred() ? -1 : 1;
        goto end;
    }
    slots[g->status] = (int64_t)(intptr_t)status;
    int64_t took = run_timed(g->kernel, slots, g->size);
    if (took < 0) goto end;
    g->nanoseconds = took;
    answer = 0;
end:
    if (before) {
        PyObject *ours = PyDataMem_SetHandler(before);
        Py_XDECREF(ours);
        Py_DECREF(before);
        if (!ours) answer = -1;
    }
    return answer;
}

/* Puts the address of an input into its slot, or a Python float into `number` and its address there.  Returns 0, 1 for
   something else, or -1 with an exception set. */
static inline int give(const Place *p, PyObject *found, int64_t *slots, double *number) {
    if (PyArray_CheckExact(found)) {
        if (!alike(p, (PyArrayObject *)found)) return 1;
        slots[p->slot] = (int64_t)(intptr_t)PyArray_DATA((PyArrayObject *)found);
        return 0;
    }
    if (p->rank || !PyFloat_CheckExact(found) || (p->kind != 'd' && p->kind != 'f')) return 1;
    if (put(p->kind, found, number)) return -1;
    slots[p->slot] = (int64_t)(intptr_t)number;
    return 0;
}

/* run({name: array}[, out]) -> {name: array}, the status if it is not 0, or None for a call that differs.  `out` are arrays
   for some of the results, as a dictionary; the others are new. */
HOT static PyObject *call_again(PyObject *self, PyObject *const *args, Py_ssize_t n) {
    Again *g = (Again *)self;
    PyObject *arrays = n > 0 ? args[0] : NULL, *out = n > 1 && args[1] != Py_None ? args[1] : NULL;
    PyObject *held[MAX_CELLS], *made[MAX_CELLS], *results = NULL;
    double numbers[MAX_CELLS];
    int64_t slots[MAX_SLOTS], status = 0;
    int count = 0, differs = 1;
    if (!arrays || !PyDict_CheckExact(arrays) || PyDict_GET_SIZE(arrays) != g->given || (out && !PyDict_CheckExact(out)))
        Py_RETURN_NONE;
    memset(made, 0, (size_t)g->made * sizeof *made);
    memcpy(slots, g->slots, (size_t)g->kernel->slots * sizeof *slots);
    for (; count < g->given; count++) {
        const Place *p = &g->places[count];
        PyObject *found = PyDict_GetItemWithError(arrays, p->name);
        differs = found ? give(p, found, slots, &numbers[count]) : 1;
        if (differs) goto end;
        held[count] = Py_NewRef(found); /* others may run meanwhile */
    }
    differs = serve(g, slots, out, made, &status);
    if (!differs && !status && (results = PyDict_Copy(g->names)))
        for (int i = 0; i < g->made; i++)
            if (PyDict_SetItem(results, g->places[g->given + i].name, made[i])) {
                Py_CLEAR(results);
                break;
            }
end:
    while (count) Py_DECREF(held[--count]);
    for (int i = 0; i < g->made; i++) Py_XDECREF(made[i]);
    if (PyErr_Occurred()) return NULL;
    if (differs) Py_RETURN_NONE;
    return status ? PyLong_FromLongLong(status) : results;
}

static int again_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((Again *)self)->kernel);
    return 0;
}

static void again_dealloc(PyObject *self) {
    Again *g = (Again *)self;
    PyObject_GC_UnTrack(self);
    for (int i = 0; g->places && i < g->given + g->made; i++) {
        Py_XDECREF(g->places[i].name);
        Py_XDECREF(g->places[i].descr);
        Py_XDECREF(g->places[i].earlier[0]);
        Py_XDECREF(g->places[i].earlier[1]);
        free(g->places[i].shape);
    }
    free(g->places);
    free(g->slots);
    Py_XDECREF(g->names);
    Py_XDECREF(g->kernel);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef again_methods[] = {
    {"run", (PyCFunction)(void (*)(void))call_again, METH_FASTCALL, "run(arrays, out) -> results, a status, or None for a call that differs"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef again_members[] = {
    {"nanoseconds", T_LONGLONG, offsetof(Again, nanoseconds), READONLY, "that the last call took"},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject AgainType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "upl_mlir.engines.native.CallAgain",
    .tp_doc = "Calls with arrays like those of an earlier call; see call_again.h.",
    .tp_basicsize = sizeof(Again),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = again_dealloc,
    .tp_traverse = again_traverse,
    .tp_methods = again_methods,
    .tp_members = again_members,
};

/* A port of the earlier call, (name, shape) or (name, shape, dtype), into its place; 0 on success. */
static int place(Again *g, int i, PyObject *port, int *slot) {
    const Formal *f = &g->kernel->formals[g->kernel->count - 1 - g->given - g->made + i];
    Place *p = &g->places[i];
    PyObject *name, *shape, *dtype = NULL;
    if (!PyArg_ParseTuple(port, "UO!|O", &name, &PyTuple_Type, &shape, &dtype)) return 1;
    p->name = Py_NewRef(name);
    p->kind = f->kind;
    p->rank = (int)PyTuple_GET_SIZE(shape);
    p->slot = (*slot)++;
    p->shape = calloc(p->rank ? (size_t)p->rank : 1, sizeof *p->shape);
    if (!p->shape || p->rank != f->rank) return 1;
    int64_t bytes = item_size(f->kind);
    for (int d = 0; d < p->rank; d++) {
        p->shape[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d));
        if (p->shape[d] < 0 || (f->fixed[d] >= 0 && f->fixed[d] != p->shape[d])) return 1;
        if (f->fixed[d] < 0) g->slots[(*slot)++] = p->shape[d];
        bytes *= p->shape[d];
    }
    p->bytes = bytes;
    g->size += bytes;
    g->large |= i >= g->given && bytes >= (int64_t)POOLED_BYTES;
    return i >= g->given && !PyArray_DescrConverter(dtype, &p->descr);
}

/* again(kernel, parameters, ((input, shape), ...), ((output, shape, dtype), ...)) -> an object whose `run` is `call_again`;
   None if the kernel has more arguments than it can take. */
static PyObject *make_again(PyObject *module, PyObject *args) {
    (void)module;
    Kernel *k;
    PyObject *params, *ins, *outs;
    if (!PyArg_ParseTuple(args, "O!O!O!O!", &KernelType, &k, &PyTuple_Type, &params, &PyTuple_Type, &ins, &PyTuple_Type, &outs)) return NULL;
    int first = (int)PyTuple_GET_SIZE(params), slot = HEADER;
    Py_ssize_t count = PyTuple_GET_SIZE(ins) + PyTuple_GET_SIZE(outs);
    if (first + count + 1 != k->count) return PyErr_Format(PyExc_TypeError, "the kernel takes %d arguments", k->count);
    if (k->count > MAX_CELLS || k->slots > MAX_SLOTS) Py_RETURN_NONE;
    Again *g = PyObject_GC_New(Again, &AgainType);
    if (!g) return NULL;
    memset((char *)g + sizeof(PyObject), 0, sizeof *g - sizeof(PyObject));
    g->kernel = (Kernel *)Py_NewRef(k);
    g->given = (int)PyTuple_GET_SIZE(ins);
    g->made = (int)PyTuple_GET_SIZE(outs);
    g->slots = calloc((size_t)k->slots, sizeof *g->slots);
    g->places = calloc(count ? (size_t)count : 1, sizeof *g->places);
    g->names = PyDict_New();
    PyObject_GC_Track((PyObject *)g);
    if (!g->slots || !g->places || !g->names) goto fault;
    for (int i = 0; i < first; i++) {
        g->slots[slot] = PyLong_AsLongLong(PyTuple_GET_ITEM(params, i));
        g->size += g->slots[slot] > 0 ? g->slots[slot] : 0;
        slot++;
    }
    for (int i = 0; i < g->given; i++)
        if (place(g, i, PyTuple_GET_ITEM(ins, i), &slot)) goto fault;
    for (int i = 0; i < g->made; i++)
        if (place(g, g->given + i, PyTuple_GET_ITEM(outs, i), &slot) ||
            PyDict_SetItem(g->names, g->places[g->given + i].name, Py_None)) goto fault;
    g->status = slot;
    if (!PyErr_Occurred()) return (PyObject *)g;
fault:
    Py_DECREF(g);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "these arrays are not what the kernel takes");
}

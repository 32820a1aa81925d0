/* The call path: Python callables that run a kernel's machine code, and the threads that share its loops.

   A kernel is  int64_t entry(int64_t *slots);  slots are described in entry.py: workspace, its size, the function that
   forks a loop, the number of threads, then the arguments.  It returns 0, or the size that the workspace must have.

   Scalar: numbers in, tuple of numbers out; nothing is allocated but the results.  Arrays: a sequence of numbers and
   objects with the buffer protocol, used in place; or, in call_again.h, arrays like those of an earlier call, whose results
   are made here.  The GIL is released around calls that take long. */

#define _GNU_SOURCE /* cpu_set_t */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HEADER 4
#define ALIGNMENT 64
#define HUGE_PAGE ((int64_t)2 << 20)
#define MAX_CELLS 64      /* scalars of a call that live on the stack */
#define MAX_SLOTS 256     /* slots of a call that live on the stack */
#define LONG_CALL_NS 20000

#if defined(__GNUC__) && !defined(__clang__)
#define HOT __attribute__((optimize("O2"))) /* the rest is compiled with -O1: whoever calls for the first time waits for it */
#else
#define HOT
#endif

typedef int64_t (*Entry)(int64_t *slots);

#include "call_pool.h"

/* ---- a kernel ------------------------------------------------------------------------------------------------ */

typedef struct {
    char kind;     /* element: d f q i b(int8) ? ; number: n */
    char written;
    int rank;      /* of an array; 0 for a cell */
    int64_t *fixed; /* sizes; -1 where open */
} Formal;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Entry entry;
    int64_t threads;
    int count, slots, inputs, outputs; /* inputs and outputs: of scalar calls */
    Formal *formals;
    PyObject *fail;  /* fail(code, arguments): called where a scalar call cannot answer */
    PyObject *owner; /* keeps the code in memory */
    char *workspace;
    int64_t room;
    int busy;
    int64_t quick; /* calls of this size (see call_arrays) took no time worth speaking of; -1: none has yet */
    int64_t *still; /* of a scalar call that takes and gives doubles: its slots, with the addresses of `cells`; else NULL */
    double *cells;  /* inputs, outputs; behind them the status */
} Kernel;

static int64_t item_size(char kind) { return kind == 'd' || kind == 'q' || kind == 'n' ? 8 : kind == 'f' || kind == 'i' ? 4 : 1; }

static char *new_workspace(int64_t bytes) {
    void *p = NULL;
    int64_t alignment = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    if (posix_memalign(&p, (size_t)alignment, (size_t)bytes)) return NULL;
#ifdef MADV_HUGEPAGE
    if (alignment == HUGE_PAGE) madvise(p, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return p;
}

/* Runs the kernel with the workspace that it wants.  Called with the GIL; returns -1 with an exception set. */
static int run(Kernel *k, int64_t *slots, int release) {
    int own = k->busy; /* another thread is in this kernel: a workspace of its own for this call */
    char *space = own ? NULL : k->workspace;
    int64_t room = own ? 0 : k->room, needed;
    if (!own) k->busy = 1;
    slots[2] = k->threads > 1 ? (int64_t)(intptr_t)fork_loop : 0;
    slots[3] = k->threads;
    for (;;) {
        slots[0] = (int64_t)(intptr_t)space;
        slots[1] = room;
        if (release) {
            Py_BEGIN_ALLOW_THREADS
            needed = k->entry(slots);
            Py_END_ALLOW_THREADS
        } else
            needed = k->entry(slots);
        if (!needed) break;
        free(space);
        room = needed + needed / 8;
        space = new_workspace(room);
        if (!own) k->workspace = space, k->room = space ? room : 0;
        if (!space) {
            if (!own) k->busy = 0;
            PyErr_NoMemory();
            return -1;
        }
    }
    if (own) free(space);
    else k->busy = 0;
    return 0;
}

static PyObject *call_fail(Kernel *k, long code, PyObject *const *args, Py_ssize_t n) {
    PyErr_Clear();
    PyObject *given = PyTuple_New(n), *number = PyLong_FromLong(code), *answer = NULL;
    if (given && number) {
        for (Py_ssize_t i = 0; i < n; i++) {
            Py_INCREF(args[i]);
            PyTuple_SET_ITEM(given, i, args[i]);
        }
        PyObject *both[2] = {number, given};
        answer = PyObject_Vectorcall(k->fail, both, 2, NULL);
    }
    Py_XDECREF(given);
    Py_XDECREF(number);
    return answer;
}

/* A Python number into a cell; 0 on success. */
static int put(char kind, PyObject *value, void *cell) {
    switch (kind) {
    case 'd':
        *(double *)cell = PyFloat_CheckExact(value) ? PyFloat_AS_DOUBLE(value) : PyFloat_AsDouble(value);
        return *(double *)cell == -1.0 && PyErr_Occurred();
    case 'f':
        *(float *)cell = (float)PyFloat_AsDouble(value);
        return *(float *)cell == -1.0f && PyErr_Occurred();
    case '?': {
        int truth = PyBool_Check(value) ? value == Py_True : -1;
        *(uint8_t *)cell = (uint8_t)truth;
        return truth < 0;
    }
    default: {
        PyObject *index = PyNumber_Index(value);
        if (!index) return 1;
        long long n = PyLong_AsLongLong(index);
        Py_DECREF(index);
        if (n == -1 && PyErr_Occurred()) return 1;
        if ((kind == 'i' && n != (int32_t)n) || (kind == 'b' && n != (int8_t)n)) return 1;
        if (item_size(kind) == 4) *(int32_t *)cell = (int32_t)n;
        else if (item_size(kind) == 1) *(int8_t *)cell = (int8_t)n;
        else *(int64_t *)cell = n;
        return 0;
    }
    }
}

static PyObject *get(char kind, const void *cell) {
    switch (kind) {
    case 'd': return PyFloat_FromDouble(*(const double *)cell);
    case 'f': return PyFloat_FromDouble(*(const float *)cell);
    case '?': return PyBool_FromLong(*(const uint8_t *)cell);
    case 'i': return PyLong_FromLong(*(const int32_t *)cell);
    case 'b': return PyLong_FromLong(*(const int8_t *)cell);
    default: return PyLong_FromLongLong(*(const int64_t *)cell);
    }
}

/* kernel(w1, w2) -> (numbers): all arguments are numbers or cells; the last one is the status. */
static PyObject *call_scalar(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    Kernel *k = (Kernel *)self;
    int64_t cells[MAX_CELLS], slots[HEADER + MAX_CELLS];
    if (given != k->inputs || (names && PyTuple_GET_SIZE(names))) return call_fail(k, -1, args, given);
    for (int i = 0; i < given; i++) {
        const Formal *f = &k->formals[i];
        if (f->kind == 'd' && PyFloat_CheckExact(args[i])) {
            double x = PyFloat_AS_DOUBLE(args[i]);
            memcpy(&cells[i], &x, sizeof x);
        } else {
            cells[i] = 0;
            if (put(f->kind, args[i], &cells[i])) return call_fail(k, -1, args, given);
        }
        slots[HEADER + i] = f->rank < 0 ? cells[i] : (int64_t)(intptr_t)&cells[i];
    }
    for (int i = (int)given; i < k->count; i++) {
        cells[i] = 0;
        slots[HEADER + i] = (int64_t)(intptr_t)&cells[i];
    }
    if (run(k, slots, 0)) return NULL;
    if (cells[k->count - 1]) return call_fail(k, (long)cells[k->count - 1], args, given);
    PyObject *out = PyTuple_New(k->outputs);
    if (!out) return NULL;
    for (int i = 0; i < k->outputs; i++) {
        PyObject *value = get(k->formals[k->inputs + i].kind, &cells[k->inputs + i]);
        if (!value) {
            Py_DECREF(out);
            return NULL;
        }
        PyTuple_SET_ITEM(out, i, value);
    }
    return out;
}

/* The same where all numbers are doubles: cells and slots stand ready.  Between the first cell and the last result no Python
   code runs and the GIL is held, so one set of them is enough. */
HOT static PyObject *call_doubles(PyObject *self, PyObject *const *args, Py_ssize_t given, PyObject *names) {
    Kernel *k = (Kernel *)self;
    double *cells = k->cells;
    if (given != k->inputs || names) return call_scalar(self, args, given, names);
    for (Py_ssize_t i = 0; i < given; i++) {
        if (!PyFloat_CheckExact(args[i])) return call_scalar(self, args, given, names);
        cells[i] = PyFloat_AS_DOUBLE(args[i]);
    }
    int64_t *status = (int64_t *)&cells[k->count - 1];
    *status = 0;
    if (k->entry(k->still)) return call_scalar(self, args, given, names); /* it wants a workspace */
    if (*status) return call_fail(k, (long)*status, args, given);
    PyObject *out = PyTuple_New(k->outputs);
    for (int i = 0; out && i < k->outputs; i++) {
        PyObject *value = PyFloat_FromDouble(cells[given + i]);
        if (value) PyTuple_SET_ITEM(out, i, value);
        else Py_CLEAR(out);
    }
    return out;
}

static int format_fits(const char *format, char kind) {
    if (!format) return kind == 'b';
    if (*format == '@' || *format == '=' || *format == '<') format++;
    if (kind == 'q') return *format == 'q' || (*format == 'l' && sizeof(long) == 8);
    return *format == kind;
}

/* Runs the kernel on arrays of `size`: what nothing is known of may take long, and others may run meanwhile.  Returns the
   nanoseconds that it took, or -1 with an exception set. */
static int64_t run_timed(Kernel *k, int64_t *slots, int64_t size) {
    int64_t start = nanoseconds();
    if (run(k, slots, size > k->quick)) return -1;
    int64_t took = nanoseconds() - start;
    if (took <= LONG_CALL_NS) k->quick = size > k->quick ? size : k->quick;
    else if (size <= k->quick) k->quick = size - 1;
    return took > 0 ? took : 0;
}

/* kernel([numbers and arrays]) -> None; an argument that does not fit is a TypeError. */
static PyObject *call_arrays(PyObject *self, PyObject *const *args, size_t flags, PyObject *names) {
    Kernel *k = (Kernel *)self;
    if (PyVectorcall_NARGS(flags) != 1 || (names && PyTuple_GET_SIZE(names)))
        return PyErr_Format(PyExc_TypeError, "a kernel takes one sequence of arguments");
    PyObject *sequence = PySequence_Fast(args[0], "a kernel takes one sequence of arguments"), *answer = NULL;
    if (!sequence) return NULL;
    Py_ssize_t given = PySequence_Fast_GET_SIZE(sequence);
    int64_t few[MAX_SLOTS], *slots = k->slots <= MAX_SLOTS ? few : malloc((size_t)k->slots * sizeof *slots);
    Py_buffer *views = given ? calloc((size_t)given, sizeof *views) : NULL;
    int64_t at = HEADER, size = 0; /* of the call: its parameters and the bytes of its arrays */
    Py_ssize_t done = 0;
    if (!slots || (given && !views)) {
        PyErr_NoMemory();
        goto end;
    }
    if (given != k->count) {
        PyErr_Format(PyExc_TypeError, "the kernel takes %d arguments, %zd given", k->count, given);
        goto end;
    }
    for (; done < given; done++) {
        const Formal *f = &k->formals[done];
        PyObject *arg = PySequence_Fast_GET_ITEM(sequence, done);
        if (f->rank < 0) {
            if (put('q', arg, &slots[at])) goto end;
            size += slots[at] > 0 && size < INT64_MAX - slots[at] ? slots[at] : 0;
            at++;
            continue;
        }
        Py_buffer *v = &views[done];
        if (PyObject_GetBuffer(arg, v, PyBUF_ND | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (f->written ? PyBUF_WRITABLE : 0))) goto end;
        if (v->ndim != f->rank || v->itemsize != item_size(f->kind) || !format_fits(v->format, f->kind)) {
            PyErr_Format(PyExc_TypeError, "argument %zd has rank %d and elements '%s'; expected rank %d and '%c'", done,
                         v->ndim, v->format ? v->format : "B", f->rank, f->kind);
            done++;
            goto end;
        }
        slots[at++] = (int64_t)(intptr_t)v->buf;
        size += size < INT64_MAX - v->len ? v->len : 0;
        for (int d = 0; d < f->rank; d++) {
            if (f->fixed[d] < 0) slots[at++] = v->shape[d];
            else if (f->fixed[d] != v->shape[d]) {
                PyErr_Format(PyExc_TypeError, "argument %zd has size %zd along axis %d; expected %lld", done, v->shape[d], d,
                             (long long)f->fixed[d]);
                done++;
                goto end;
            }
        }
    }
    if (run_timed(k, slots, size) >= 0) answer = Py_NewRef(Py_None);
end:
    for (Py_ssize_t i = 0; views && i < done; i++)
        if (views[i].obj) PyBuffer_Release(&views[i]);
    free(views);
    if (slots != few) free(slots);
    Py_DECREF(sequence);
    return answer;
}

/* ---- the type ------------------------------------------------------------------------------------------------ */

static int traverse(PyObject *self, visitproc visit, void *arg) {
    Kernel *k = (Kernel *)self;
    Py_VISIT(k->fail);
    Py_VISIT(k->owner);
    return 0;
}

static int clear(PyObject *self) {
    Kernel *k = (Kernel *)self;
    Py_CLEAR(k->fail);
    Py_CLEAR(k->owner);
    return 0;
}

static void dealloc(PyObject *self) {
    Kernel *k = (Kernel *)self;
    PyObject_GC_UnTrack(self);
    if (k->formals) {
        for (int i = 0; i < k->count; i++) free(k->formals[i].fixed);
        free(k->formals);
    }
    free(k->workspace);
    free(k->still);
    free(k->cells);
    clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject KernelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "upl_mlir.engines.native.CompiledCall",
    .tp_doc = "Runs machine code; see call.c.",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_vectorcall_offset = offsetof(Kernel, call),
    .tp_call = PyVectorcall_Call,
    .tp_dealloc = dealloc,
    .tp_traverse = traverse,
    .tp_clear = clear,
};

#include "call_memory.h"
#include "call_again.h"
#include "call_whole.h"

static PyMethodDef doubles_method = {
    "scalar", (PyCFunction)(void (*)(void))call_doubles, METH_FASTCALL | METH_KEYWORDS, "Numbers in, a tuple of numbers out.",
};

static PyMethodDef scalar_method = {
    "scalar", (PyCFunction)(void (*)(void))call_scalar, METH_FASTCALL | METH_KEYWORDS, "Numbers in, a tuple of numbers out.",
};

/* make(entry, threads, [(kind, written, shape or None)], inputs or -1, fail, owner) -> callable.
   `inputs` >= 0 asks for a scalar call that takes the first so many arguments; -1 for a call with arrays. */
static PyObject *make(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long entry;
    long long threads;
    PyObject *formals, *fail, *owner;
    int inputs;
    if (!PyArg_ParseTuple(args, "KLO!iOO", &entry, &threads, &PyList_Type, &formals, &inputs, &fail, &owner)) return NULL;
    Kernel *k = PyObject_GC_New(Kernel, &KernelType);
    if (!k) return NULL;
    memset((char *)k + sizeof(PyObject), 0, sizeof *k - sizeof(PyObject));
    k->entry = (Entry)(intptr_t)entry;
    k->threads = threads;
    k->count = (int)PyList_GET_SIZE(formals);
    k->inputs = inputs;
    k->outputs = k->count - 1 - inputs;
    k->call = call_arrays;
    k->quick = -1;
    k->fail = Py_NewRef(fail);
    k->owner = Py_NewRef(owner);
    k->formals = calloc(k->count ? (size_t)k->count : 1, sizeof *k->formals);
    k->slots = HEADER;
    PyObject_GC_Track((PyObject *)k);
    if (inputs >= 0 && k->count > MAX_CELLS) {
        Py_DECREF(k);
        return PyErr_Format(PyExc_ValueError, "more than %d scalars", MAX_CELLS);
    }
    for (int i = 0; i < k->count; i++) {
        Formal *f = &k->formals[i];
        int kind, written;
        PyObject *shape;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(formals, i), "CpO", &kind, &written, &shape)) goto fault;
        f->kind = (char)kind;
        f->written = (char)written;
        f->rank = -1;
        k->slots++;
        if (shape == Py_None) continue;
        f->rank = (int)PyTuple_Size(shape);
        f->fixed = calloc(f->rank > 0 ? (size_t)f->rank : 1, sizeof *f->fixed);
        if (f->rank < 0 || !f->fixed) goto fault;
        for (int d = 0; d < f->rank; d++) {
            f->fixed[d] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, d));
            if (PyErr_Occurred()) goto fault;
            k->slots += f->fixed[d] < 0;
        }
    }
    if (inputs < 0) return (PyObject *)k;
    int doubles = 1;
    for (int i = 0; i < k->count - 1; i++) doubles &= k->formals[i].kind == 'd' && k->formals[i].rank == 0;
    if (doubles) {
        k->cells = calloc((size_t)k->count, sizeof *k->cells);
        k->still = calloc((size_t)k->slots, sizeof *k->still);
        if (!k->cells || !k->still) goto fault;
        k->still[2] = k->threads > 1 ? (int64_t)(intptr_t)fork_loop : 0;
        k->still[3] = k->threads;
        for (int i = 0; i < k->count; i++) k->still[HEADER + i] = (int64_t)(intptr_t)&k->cells[i];
    }
    /* Python calls functions quicker than objects */
    PyObject *function = PyCFunction_New(doubles ? &doubles_method : &scalar_method, (PyObject *)k);
    Py_DECREF(k);
    return function;
fault:
    Py_DECREF(k);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
}

static PyMethodDef functions[] = {
    {"again", make_again, METH_VARARGS, "again(kernel, parameters, inputs, outputs) -> object with run()"},
    {"whole", make_whole, METH_VARARGS, "whole(again, arguments, constants, result, fault) -> function of a tuple of arguments"},
    {"make", make, METH_VARARGS, "make(entry, threads, formals, inputs, fail, owner) -> callable"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_upl_call", .m_doc = "Calls of compiled kernels.", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC PyInit__upl_call(void) {
    import_array();
    block_capsule = PyCapsule_New(&block_handler, "mem_handler", NULL);
    if (!block_capsule) return NULL;
    if (PyType_Ready(&KernelType) < 0 || PyType_Ready(&AgainType) < 0 || PyType_Ready(&WholeType) < 0) return NULL;
    pthread_atfork(NULL, NULL, forget_workers);
    return PyModule_Create(&definition);
}

/* What the ranks know of each other: the numbers with which each rank's function is called. */
typedef struct {
    MPI_Comm comm;
    int rank, count, numbers;
    const int64_t *of; /* so many `numbers` of each rank, one rank behind the other */
} upl_ranks;

/* Elements of an array: the first and the last index of each field, and the index at place 0 of each axis in memory. */
typedef struct {
    int64_t low[UPL_FIELDS], high[UPL_FIELDS], origin[UPL_FIELDS];
} upl_box;

/* An exchange: `needed` writes the box that the rank with the numbers `of` needs, at values `at` of the loops' variables.
   A rank owns the elements whose field `cut` lies in its block, which begins and ends at its numbers `first` and `last`.
   With `cut` below 0 the ranks' parts of each element are combined instead, by `op`, or by `combine`. */
typedef struct {
    int tag, fields, axes, cut, first, last;
    int field[UPL_FIELDS];       /* the field of each axis */
    int64_t modulus[UPL_FIELDS]; /* how many indices an axis keeps, the last ones; 0: all */
    size_t bytes;                /* of an element */
    MPI_Datatype type;
    void (*needed)(const int64_t *of, const int64_t *at, upl_box *box);
    MPI_Op op;
    MPI_User_function *combine;
} upl_exchange;

/* The first and the last index of a rank's block of low..high: blocks differ by one index at most. */
static void upl_block(int64_t low, int64_t high, int rank, int count, int64_t *first, int64_t *last)
{
    const int64_t n = high < low ? 0 : high - low + 1;
    *first = low + n * rank / count;
    *last = low + n * (rank + 1) / count - 1;
}

/* The number of elements of a box. Along a field without an axis there is one. */
static int upl_count(const upl_ranks *all, const upl_exchange *x, const upl_box *box)
{
    int64_t n = 1;
    for (int f = 0; f < x->fields; ++f)
        if (box->high[f] < box->low[f]) return 0;
    for (int k = 0; k < x->axes; ++k) {
        n *= box->high[x->field[k]] - box->low[x->field[k]] + 1;
        if (n > INT32_MAX) {
            fputs("upl: a message would have more than 2147483647 elements; use more ranks\n", stderr);
            MPI_Abort(all->comm, 1);
        }
    }
    return (int)n;
}

/* Copies the elements of a box between an array and a buffer, in the order of their indices. */
static void upl_copy(const upl_exchange *x, char *array, const int64_t *sizes, const upl_box *box, char *buffer, bool pack)
{
    const int last = x->axes - 1;
    const bool rows = last >= 0 && !x->modulus[last]; /* then elements along the last axis lie side by side */
    const size_t run = x->bytes * (size_t)(rows ? box->high[x->field[last]] - box->low[x->field[last]] + 1 : 1);
    int64_t at[UPL_FIELDS] = {0};
    for (int k = 0; k <= last; ++k) at[k] = box->low[x->field[k]];
    for (;; buffer += run) {
        int64_t place = 0;
        for (int k = 0; k <= last; ++k) {
            int64_t i = at[k] - box->origin[k];
            if (x->modulus[k]) i = (i % x->modulus[k] + x->modulus[k]) % x->modulus[k];
            place = place * sizes[k] + i;
        }
        char *const there = array + place * (int64_t)x->bytes;
        if (pack) memcpy(buffer, there, run);
        else memcpy(there, buffer, run);
        int k = rows ? last - 1 : last;
        for (; k >= 0 && ++at[k] > box->high[x->field[k]]; --k) at[k] = box->low[x->field[k]];
        if (k < 0) return;
    }
}

/* What one rank needs of what another one owns, in the memory of the calling rank; returns the number of elements. */
static int upl_part(
    const upl_ranks *all, const upl_exchange *x, int needs, int owns, const int64_t *at, const upl_box *mine, upl_box *box)
{
    const int64_t *const owner = all->of + (int64_t)owns * all->numbers;
    x->needed(all->of + (int64_t)needs * all->numbers, at, box);
    if (box->low[x->cut] < owner[x->first]) box->low[x->cut] = owner[x->first];
    if (box->high[x->cut] > owner[x->last]) box->high[x->cut] = owner[x->last];
    memcpy(box->origin, mine->origin, sizeof box->origin);
    return upl_count(all, x, box);
}

/* Combines what all ranks have of the elements in a box, which is the same for all. */
static void upl_combined(
    const upl_ranks *all, const upl_exchange *x, void *array, const int64_t *sizes, const upl_box *box)
{
    const int n = upl_count(all, x, box);
    if (!n) return;
    MPI_Op op = x->op;
    char *const buffer = scratch((int64_t)x->bytes * n);
    if (x->combine) MPI_Op_create(x->combine, 1, &op);
    upl_copy(x, array, sizes, box, buffer, true);
    MPI_Allreduce(MPI_IN_PLACE, buffer, n, x->type, op, all->comm);
    upl_copy(x, array, sizes, box, buffer, false);
    if (x->combine) MPI_Op_free(&op);
    free(buffer);
}

/* One exchange: everything is sent and received before it ends. */
static void upl_exchanged(
    const upl_ranks *all, const upl_exchange *x, void *array, const int64_t *sizes, const int64_t *at)
{
    upl_box mine;
    int messages = 0;
    if (all->count == 1) return;
    x->needed(all->of + (int64_t)all->rank * all->numbers, at, &mine);
    if (x->cut < 0) {
        upl_combined(all, x, array, sizes, &mine);
        return;
    }
    upl_box *const box = scratch(2 * (int64_t)sizeof *box * all->count);
    char **const buffer = scratch(2 * (int64_t)sizeof *buffer * all->count);
    MPI_Request *const request = scratch(2 * (int64_t)sizeof *request * all->count);
    for (int r = 0; r < all->count; ++r) {
        const int n = r == all->rank ? 0 : upl_part(all, x, all->rank, r, at, &mine, &box[messages]);
        if (!n) continue;
        buffer[messages] = scratch((int64_t)x->bytes * n);
        MPI_Irecv(buffer[messages], n, x->type, r, x->tag, all->comm, &request[messages]);
        ++messages;
    }
    const int received = messages;
    for (int r = 0; r < all->count; ++r) {
        const int n = r == all->rank ? 0 : upl_part(all, x, r, all->rank, at, &mine, &box[messages]);
        if (!n) continue;
        buffer[messages] = scratch((int64_t)x->bytes * n);
        upl_copy(x, array, sizes, &box[messages], buffer[messages], true);
        MPI_Isend(buffer[messages], n, x->type, r, x->tag, all->comm, &request[messages]);
        ++messages;
    }
    MPI_Waitall(messages, request, MPI_STATUSES_IGNORE);
    for (int k = 0; k < messages; ++k) {
        if (k < received) upl_copy(x, array, sizes, &box[k], buffer[k], false);
        free(buffer[k]);
    }
    free(box);
    free(buffer);
    free(request);
}

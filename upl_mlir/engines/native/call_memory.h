/* Memory of results: blocks that were given back are handed out again, for the same size.

   The next call then writes to memory that is in the caches and mapped already; the C library gives large blocks back to
   the system, which maps and clears them anew (800 kB: 100 microseconds, more than many a kernel).  Arrays own such memory as
   they own any other (NEP 49).  Included by call.c, of which it uses new_workspace. */

#define POOLED_BYTES ((size_t)64 << 10) /* least size of a block that is kept */
#define KEPT_BYTES ((size_t)64 << 20)   /* that wait in all */
#define KEPT_BLOCKS 64

typedef struct Block {
    struct Block *next;
    size_t bytes; /* behind this head, which takes ALIGNMENT bytes */
} Block;

static struct {
    pthread_mutex_t lock;
    Block *first; /* the last one given back comes first */
    size_t bytes;
    int count;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *block_new(void *context, size_t bytes) {
    (void)context;
    Block *b = NULL;
    if (bytes >= POOLED_BYTES) {
        pthread_mutex_lock(&kept.lock);
        Block **at = &kept.first;
        while (*at && (*at)->bytes != bytes) at = &(*at)->next;
        if ((b = *at)) {
            *at = b->next;
            kept.bytes -= bytes;
            kept.count--;
        }
        pthread_mutex_unlock(&kept.lock);
    }
    if (!b && bytes <= (size_t)INT64_MAX / 2) b = (Block *)new_workspace((int64_t)bytes + ALIGNMENT);
    if (!b) return NULL;
    b->bytes = bytes;
    return (char *)b + ALIGNMENT;
}

static void block_free(void *context, void *data, size_t bytes) {
    (void)context;
    (void)bytes;
    if (!data) return;
    Block *b = (Block *)((char *)data - ALIGNMENT), *gone = b;
    if (b->bytes >= POOLED_BYTES && b->bytes <= KEPT_BYTES) {
        pthread_mutex_lock(&kept.lock);
        b->next = kept.first;
        kept.first = b;
        kept.bytes += b->bytes;
        kept.count++;
        Block **at = &kept.first; /* the oldest ones go */
        size_t sum = 0;
        for (int i = 0; *at && i < KEPT_BLOCKS && sum + (*at)->bytes <= KEPT_BYTES; i++) {
            sum += (*at)->bytes;
            at = &(*at)->next;
        }
        gone = *at;
        *at = NULL;
        for (Block *old = gone; old; old = old->next) {
            kept.bytes -= old->bytes;
            kept.count--;
        }
        pthread_mutex_unlock(&kept.lock);
    } else
        b->next = NULL;
    while (gone) {
        Block *next = gone->next;
        free(gone);
        gone = next;
    }
}

static void *block_cleared(void *context, size_t count, size_t each) {
    if (each && count > SIZE_MAX / each) return NULL;
    void *data = block_new(context, count * each);
    return data ? memset(data, 0, count * each) : NULL;
}

static void *block_resized(void *context, void *data, size_t bytes) {
    void *other = block_new(context, bytes);
    if (other && data) {
        size_t old = ((Block *)((char *)data - ALIGNMENT))->bytes;
        memcpy(other, data, old < bytes ? old : bytes);
        block_free(context, data, old);
    }
    return other;
}

static PyDataMem_Handler block_handler = {
    "upl_mlir results", 1, {NULL, block_new, block_cleared, block_resized, block_free},
};

static PyObject *block_capsule; /* what numpy takes a handler in */

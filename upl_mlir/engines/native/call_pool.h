/* The threads that share a kernel's loops: a pool of their own, one loop at a time.

   Included by call.c. */

#define MAX_THREADS 256
#define IDLE_NS 200000    /* how long a thread waits awake for the next loop: waking it takes a quarter of that, or more */
#define END_NS 20000      /* how long the caller waits awake for the last thread */

typedef void (*Task)(void *context, int64_t begin, int64_t end, int64_t thread);

/* A loop is open while there may be work left. Workers join an open loop and leave it; who comes too late, because its core
   has other things to do, is not waited for. The gate holds the number of workers inside, whether the loop is open, and the
   number of the loop. */
#define INSIDE ((uint64_t)0xffff)
#define OPEN ((uint64_t)1 << 16)
#define LOOP(gate) ((gate) >> 17)

static struct {
    pthread_mutex_t lock; /* of the sleepers */
    pthread_cond_t wake, finished;
    _Atomic uint64_t gate;
    _Atomic int asleep;   /* workers */
    _Atomic int waiting;  /* the caller */
    _Atomic int taken;    /* a loop is being run: only one at a time */
    int started;          /* workers that exist; their thread numbers are 1 .. started */
    int cores;            /* that this process may use */
    /* the loop being run */
    Task task;
    void *context;
    int64_t threads, count, grain;
    _Atomic int64_t next;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .finished = PTHREAD_COND_INITIALIZER};

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    sched_yield();
#endif
}

static int64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Whether a worker that has seen loop number `seen` has another one to join. */
static inline int called(uint64_t seen) {
    uint64_t gate = atomic_load(&pool.gate);
    return gate & OPEN && LOOP(gate) != seen;
}

static inline int all_left(uint64_t unused) {
    (void)unused;
    return !(atomic_load(&pool.gate) & INSIDE);
}

/* Waits awake, but not long, until something holds; not at all where threads have to share cores. */
static inline int spin(int (*holds)(uint64_t), uint64_t argument, int64_t for_ns) {
    if (pool.started >= pool.cores) return holds(argument);
    for (int64_t end = nanoseconds() + for_ns; nanoseconds() < end; sched_yield()) /* others may want the core */
        for (int i = 0; i < 64; i++) {
            if (holds(argument)) return 1;
            pause_cpu();
        }
    return 0;
}

static void take_chunks(int64_t thread) {
    for (;;) {
        int64_t begin = atomic_fetch_add(&pool.next, pool.grain);
        if (begin >= pool.count) return;
        int64_t end = begin + pool.grain;
        pool.task(pool.context, begin, end < pool.count ? end : pool.count, thread);
    }
}

static void *work(void *number) {
    int64_t thread = (intptr_t)number;
    for (uint64_t seen = 0;;) {
        if (!spin(called, seen, IDLE_NS)) {
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.asleep, 1);
            while (!called(seen)) pthread_cond_wait(&pool.wake, &pool.lock);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        uint64_t gate = atomic_load(&pool.gate);
        seen = LOOP(gate);
        while (gate & OPEN && LOOP(gate) == seen && !atomic_compare_exchange_weak(&pool.gate, &gate, gate + 1)) {}
        if (!(gate & OPEN) || LOOP(gate) != seen) continue; /* too late */
        if (thread < pool.threads) take_chunks(thread);
        gate = atomic_fetch_sub(&pool.gate, 1) - 1;
        if (!(gate & (INSIDE | OPEN)) && atomic_load(&pool.waiting)) {
            pthread_mutex_lock(&pool.lock);
            pthread_cond_signal(&pool.finished);
            pthread_mutex_unlock(&pool.lock);
        }
    }
    return NULL;
}

/* How many cores this process may use. */
static int usable_cores(void) {
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

/* Runs task(context, begin, end, thread) over all of 0 .. count-1 on at most `threads` threads, this one among them.
   Every index is run once; which thread runs it is open. */
static void fork_loop(int64_t threads, Task task, void *context, int64_t count) {
    int free_ = 0;
    if (!pool.cores) pool.cores = usable_cores();
    if (threads > pool.cores) threads = pool.cores; /* more would take turns */
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > count) threads = count;
    if (threads < 2 || !atomic_compare_exchange_strong(&pool.taken, &free_, 1)) {
        task(context, 0, count, 0); /* nothing to share, or another loop has the threads */
        return;
    }
    while (pool.started < threads - 1) {
        pthread_t made;
        if (pthread_create(&made, NULL, work, (void *)(intptr_t)(pool.started + 1))) break;
        pthread_detach(made);
        pool.started++;
    }
    if (threads > pool.started + 1) threads = pool.started + 1;
    pool.task = task;
    pool.context = context;
    pool.threads = threads;
    pool.count = count;
    pool.grain = count / (threads * 4) > 0 ? count / (threads * 4) : 1;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.gate, (LOOP(atomic_load(&pool.gate)) + 1) << 17 | OPEN);
    if (atomic_load(&pool.asleep)) { /* a worker counts itself and then looks at the gate under the lock, so none is missed */
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.lock);
    }
    take_chunks(0);
    atomic_fetch_and(&pool.gate, ~OPEN);
    if (!spin(all_left, 0, END_NS)) {
        pthread_mutex_lock(&pool.lock);
        atomic_store(&pool.waiting, 1);
        while (!all_left(0)) pthread_cond_wait(&pool.finished, &pool.lock);
        atomic_store(&pool.waiting, 0);
        pthread_mutex_unlock(&pool.lock);
    }
    atomic_store(&pool.taken, 0);
}

/* After fork() the child has no workers: it begins with none. */
static void forget_workers(void) {
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.wake, NULL);
    pthread_cond_init(&pool.finished, NULL);
    pool.started = 0;
    atomic_store(&pool.gate, 0);
    atomic_store(&pool.asleep, 0);
    atomic_store(&pool.taken, 0);
    atomic_store(&pool.waiting, 0);
}

// How fast all processors add at the same time: see processors.py.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <sched.h>
#include <thread>
#include <vector>

constexpr int ROUNDS = 1500000;

// Nanoseconds of six additions that do not depend on each other: as many as a processor core has room for in a clock.
static double additions() {
    const auto start = std::chrono::steady_clock::now();
    unsigned long a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
    for (int n = 0; n < ROUNDS; n++) {
        a++, b++, c++, d++, e++, f++;
        asm volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / ROUNDS;
}

extern "C" double slowest_additions() {
    cpu_set_t ours;
    sched_getaffinity(0, sizeof ours, &ours);
    const int count = CPU_COUNT(&ours);
    std::atomic<int> ready{0};
    std::vector<double> found(count);
    std::vector<std::thread> threads;
    for (int cpu = 0, n = 0; n < count; cpu++)
        if (CPU_ISSET(cpu, &ours))
            threads.emplace_back([&, cpu, to = &found[n++]] {
                cpu_set_t one;
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                sched_setaffinity(0, sizeof one, &one);
                for (ready++; ready < count;)
                    ;
                *to = additions();
            });
    for (auto& thread : threads) thread.join();
    return *std::max_element(found.begin(), found.end());
}

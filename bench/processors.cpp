// How fast all processors add at the same time, and how long a message takes from one to another: see processors.py.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <sched.h>
#include <thread>
#include <vector>

constexpr int ROUNDS = 1500000, MESSAGES = 3000;

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

// Those that this process may use.
static std::vector<int> processors() {
    cpu_set_t ours;
    sched_getaffinity(0, sizeof ours, &ours);
    std::vector<int> found;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &ours)) found.push_back(cpu);
    return found;
}

// A thread on that processor, which begins when all `count` of them are there.
template <typename Work> static std::thread on(int cpu, std::atomic<int>& ready, int count, Work work) {
    return std::thread([=, &ready] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        for (ready++; ready < count;)
            ;
        work();
    });
}

extern "C" double slowest_additions() {
    const auto cpus = processors();
    std::atomic<int> ready{0};
    std::vector<double> found(cpus.size());
    std::vector<std::thread> threads;
    for (std::size_t n = 0; n < cpus.size(); n++)
        threads.push_back(on(cpus[n], ready, int(cpus.size()), [to = &found[n]] { *to = additions(); }));
    for (auto& thread : threads) thread.join();
    return *std::max_element(found.begin(), found.end());
}

// Nanoseconds of a message from the first processor to the second one or back; 0 if there is only one.
extern "C" double message() {
    const auto cpus = processors();
    if (cpus.size() < 2) return 0;
    struct alignas(64) Line {
        std::atomic<int> last{0};
    } there, back;
    std::atomic<int> ready{0};
    double found = 0;
    auto one = on(cpus[0], ready, 2, [&] {
        const auto start = std::chrono::steady_clock::now();
        for (int n = 1; n <= MESSAGES; n++) {
            there.last.store(n, std::memory_order_release);
            while (back.last.load(std::memory_order_acquire) != n)
                ;
        }
        found = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / (2 * MESSAGES);
    });
    auto other = on(cpus[1], ready, 2, [&] {
        for (int n = 1; n <= MESSAGES; n++) {
            while (there.last.load(std::memory_order_acquire) != n)
                ;
            back.last.store(n, std::memory_order_release);
        }
    });
    one.join(), other.join();
    return found;
}

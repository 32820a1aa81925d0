/* What bench/sparse compares native code with: the same kernels by hand, without any check of an index. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef Index
#define Index int32_t
#endif

void ell(long m, long w, const double *v, const Index *col, const Index *count, const double *x, double *y) {
    for (long i = 0; i < m; i++) {
        double s = 0;
        for (long p = 0; p < count[i]; p++) s += v[i * w + p] * x[col[i * w + p]];
        y[i] = s;
    }
}
void coo(long z, long m, const double *v, const Index *row, const Index *col, const double *x, double *y) {
    memset(y, 0, m * sizeof *y);
    for (long e = 0; e < z; e++) y[row[e]] += v[e] * x[col[e]];
}
void pagerank(long n, long m, long steps, const Index *from, const Index *to, const double *out, const double *r0,
              double *r, double *given, double *sum) {
    memcpy(r, r0, n * sizeof *r);
    for (long t = 0; t < steps; t++) {
        for (long v = 0; v < n; v++) { given[v] = r[v] / out[v]; sum[v] = 0; }
        for (long e = 0; e < m; e++) sum[to[e]] += given[from[e]];
        for (long v = 0; v < n; v++) r[v] = 0.15 / n + 0.85 * sum[v];
    }
}
void rows(long b, long k, const Index *id, const double *table, double *y) {
    for (long i = 0; i < b; i++) memcpy(y + i * k, table + id[i] * k, k * sizeof *y);
}
void messages(long n, long m, long f, const Index *from, const Index *to, const double *h, const double *g, double *y) {
    memset(y, 0, n * f * sizeof *y);
    for (long e = 0; e < m; e++)
        for (long j = 0; j < f; j++) y[to[e] * f + j] += g[e] * h[from[e] * f + j];
}
/* Values and gradients: d is the derivative by y. */
void ell_gradient(long m, long n, long w, const double *v, const Index *col, const Index *count, const double *x,
                  const double *d, double *y, double *dv, double *dx) {
    memset(dx, 0, n * sizeof *dx);
    for (long i = 0; i < m; i++) {
        double s = 0;
        for (long p = 0; p < w; p++) dv[i * w + p] = 0;
        for (long p = 0; p < count[i]; p++) {
            Index j = col[i * w + p];
            s += v[i * w + p] * x[j];
            dv[i * w + p] = d[i] * x[j];
            dx[j] += d[i] * v[i * w + p];
        }
        y[i] = s;
    }
}
void messages_gradient(long n, long m, long f, const Index *from, const Index *to, const double *h, const double *g,
                       const double *d, double *y, double *dh, double *dg) {
    memset(y, 0, n * f * sizeof *y);
    memset(dh, 0, n * f * sizeof *dh);
    for (long e = 0; e < m; e++) {
        const double *a = h + from[e] * f, *b = d + to[e] * f;
        double *out = y + to[e] * f, *back = dh + from[e] * f, s = 0;
        for (long j = 0; j < f; j++) {
            out[j] += g[e] * a[j];
            back[j] += g[e] * b[j];
            s += a[j] * b[j];
        }
        dg[e] = s;
    }
}
void embedding_gradient(long b, long k, long m, long r, const Index *id, const double *table, const double *w,
                        const double *d, double *y, double *dt, double *dw) {
    memset(y, 0, b * m * sizeof *y), memset(dt, 0, r * k * sizeof *dt), memset(dw, 0, k * m * sizeof *dw);
    for (long i = 0; i < b; i++) {
        const double *row = table + id[i] * k, *back = d + i * m;
        double *drow = dt + id[i] * k, *out = y + i * m;
        for (long j = 0; j < k; j++) {
            const double *wj = w + j * m;
            double *dwj = dw + j * m, x = row[j], s = 0;
            for (long c = 0; c < m; c++) {
                out[c] += x * wj[c];
                dwj[c] += x * back[c];
                s += back[c] * wj[c];
            }
            drow[j] += s;
        }
    }
}
/* Out = H + what comes along edges of tanh(H W); the derivatives by H and W. */
void passing_gradient(long n, long m, long f, const Index *from, const Index *to, const double *h, const double *w,
                      const double *d, double *out, double *dh, double *dw) {
    double *msg = malloc(n * f * sizeof *msg), *back = calloc(n * f, sizeof *back);
    memcpy(out, h, n * f * sizeof *out), memcpy(dh, d, n * f * sizeof *dh), memset(dw, 0, f * f * sizeof *dw);
    for (long v = 0; v < n; v++) {
        double *row = msg + v * f;
        for (long j = 0; j < f; j++) row[j] = 0;
        for (long k = 0; k < f; k++)
            for (long j = 0; j < f; j++) row[j] += h[v * f + k] * w[k * f + j];
        for (long j = 0; j < f; j++) row[j] = tanh(row[j]);
    }
    for (long e = 0; e < m; e++) {
        const double *a = msg + from[e] * f, *b = d + to[e] * f;
        double *sum = out + to[e] * f, *g = back + from[e] * f;
        for (long j = 0; j < f; j++) sum[j] += a[j], g[j] += b[j];
    }
    for (long v = 0; v < n; v++) {
        double *row = msg + v * f, *g = back + v * f;
        for (long j = 0; j < f; j++) g[j] *= 1 - row[j] * row[j];
        for (long k = 0; k < f; k++) {
            double x = h[v * f + k], s = 0;
            for (long j = 0; j < f; j++) dw[k * f + j] += x * g[j], s += g[j] * w[k * f + j];
            dh[v * f + k] += s;
        }
    }
    free(msg), free(back);
}
/* best: (steps + 1) by s, top: steps by s; the way back looks for the state that a state came from. */
double viterbi(long steps, long s, const double *start, const double *move, const double *seen, double *best, double *top,
               int64_t *path) {
    memcpy(best, start, s * sizeof *best);
    for (long t = 0; t < steps; t++) {
        const double *b = best + t * s;
        double *a = top + t * s;
        for (long j = 0; j < s; j++) a[j] = -INFINITY;
        for (long i = 0; i < s; i++)
            for (long j = 0; j < s; j++) a[j] = b[i] + move[i * s + j] > a[j] ? b[i] + move[i * s + j] : a[j];
        for (long j = 0; j < s; j++) best[(t + 1) * s + j] = a[j] + seen[t * s + j];
    }
    long at = 0;
    for (long j = 0; j < s; j++) at = best[steps * s + j] > best[steps * s + at] ? j : at;
    path[steps] = at;
    for (long t = steps - 1; t >= 0; t--) {
        long i = 0;
        while (best[t * s + i] + move[i * s + path[t + 1]] != top[t * s + path[t + 1]]) i++;
        path[t] = i;
    }
    return best[steps * s + at];
}
/* The derivatives of the score; where several states are best they share. */
double viterbi_gradient(long steps, long s, const double *start, const double *move, const double *seen, double *best,
                        double *top, int64_t *path, double *dmove, double *dseen) {
    double score = viterbi(steps, s, start, move, seen, best, top, path), *d = malloc(2 * s * sizeof *d), *n = d + s;
    long ties = 0;
    memset(dmove, 0, s * s * sizeof *dmove);
    for (long j = 0; j < s; j++) ties += best[steps * s + j] == score;
    for (long j = 0; j < s; j++) d[j] = best[steps * s + j] == score ? 1.0 / ties : 0;
    for (long t = steps - 1; t >= 0; t--) {
        const double *b = best + t * s, *a = top + t * s;
        memcpy(dseen + t * s, d, s * sizeof *d);
        for (long j = 0; j < s; j++) n[j] = 0;
        for (long i = 0; i < s; i++)
            for (long j = 0; j < s; j++) n[j] += b[i] + move[i * s + j] == a[j] ? 1 : 0;
        for (long j = 0; j < s; j++) n[j] = d[j] / n[j];
        for (long i = 0; i < s; i++) {
            double sum = 0;
            for (long j = 0; j < s; j++) {
                double g = b[i] + move[i * s + j] == a[j] ? n[j] : 0;
                dmove[i * s + j] += g;
                sum += g;
            }
            d[i] = sum;
        }
    }
    free(d);
    return score;
}
double knapsack(long n, long room, const Index *weight, const double *value, double *best) {
    for (long i = 0; i < n; i++) {
        const double *b = best + (i % 2) * (room + 1);
        double *a = best + (1 - i % 2) * (room + 1), v = value[i];
        long w = weight[i];
        memcpy(a, b, (w < room + 1 ? w : room + 1) * sizeof *a);
        for (long c = w; c <= room; c++) a[c] = b[c - w] + v > b[c] ? b[c - w] + v : b[c];
    }
    return best[(n % 2) * (room + 1) + room];
}
/* best: (n + 1) by (room + 1). */
double knapsack_gradient(long n, long room, const Index *weight, const double *value, double *best, double *dvalue) {
    long size = room + 1;
    double *d = calloc(2 * size, sizeof *d), *before = d + size, *given = d;
    for (long i = 0; i < n; i++) {
        const double *b = best + i * size;
        double *a = best + (i + 1) * size, v = value[i];
        long w = weight[i];
        memcpy(a, b, (w < size ? w : size) * sizeof *a);
        for (long c = w; c < size; c++) a[c] = b[c - w] + v > b[c] ? b[c - w] + v : b[c];
    }
    d[room] = 1;
    for (long i = n - 1; i >= 0; i--) {
        const double *b = best + i * size, *a = b + size;
        long w = weight[i];
        double v = value[i], s = 0;
        for (long c = 0; c < size; c++) before[c] = 0;
        for (long c = 0; c < size; c++) {
            int stay = b[c] == a[c], take = c >= w && b[c - w] + v == a[c];
            double g = d[c] / (stay + take);
            before[c] += stay ? g : 0;
            if (c >= w) before[c - w] += take ? g : 0;
            s += take ? g : 0;
        }
        dvalue[i] = s;
        double *swap = d;
        d = before, before = swap;
    }
    double score = best[n * size + room];
    free(given);
    return score;
}
void newton(long n, long most, const double *m, const double *e, double *out, int64_t *steps) {
    for (long i = 0; i < n; i++) {
        double x = m[i], next;
        long k = 0;
        for (;;) {
            next = x - (x - e[i] * sin(x) - m[i]) / (1 - e[i] * cos(x));
            k++;
            if (!(fabs(next - x) > 1e-10) || k == most) break;
            x = next;
        }
        out[i] = next, steps[i] = k;
    }
}

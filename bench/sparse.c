/* What bench/sparse.py compares native code with: the same kernels by hand, without any check of an index. */
#include <stdint.h>
#include <string.h>

void ell(long m, long w, const double *v, const int64_t *col, const int64_t *count, const double *x, double *y) {
    for (long i = 0; i < m; i++) {
        double s = 0;
        for (long p = 0; p < count[i]; p++) s += v[i * w + p] * x[col[i * w + p]];
        y[i] = s;
    }
}
void coo(long z, long m, const double *v, const int64_t *row, const int64_t *col, const double *x, double *y) {
    memset(y, 0, m * sizeof *y);
    for (long e = 0; e < z; e++) y[row[e]] += v[e] * x[col[e]];
}
void pagerank(long n, long m, long steps, const int64_t *from, const int64_t *to, const double *out, const double *r0,
              double *r, double *given, double *sum) {
    memcpy(r, r0, n * sizeof *r);
    for (long t = 0; t < steps; t++) {
        for (long v = 0; v < n; v++) { given[v] = r[v] / out[v]; sum[v] = 0; }
        for (long e = 0; e < m; e++) sum[to[e]] += given[from[e]];
        for (long v = 0; v < n; v++) r[v] = 0.15 / n + 0.85 * sum[v];
    }
}
void rows(long b, long k, const int64_t *id, const double *table, double *y) {
    for (long i = 0; i < b; i++) memcpy(y + i * k, table + id[i] * k, k * sizeof *y);
}
void messages(long n, long m, long f, const int64_t *from, const int64_t *to, const double *h, const double *g, double *y) {
    memset(y, 0, n * f * sizeof *y);
    for (long e = 0; e < m; e++)
        for (long j = 0; j < f; j++) y[to[e] * f + j] += g[e] * h[from[e] * f + j];
}
/* Values and gradients: d is the derivative by y. */
void ell_gradient(long m, long n, long w, const double *v, const int64_t *col, const int64_t *count, const double *x,
                  const double *d, double *y, double *dv, double *dx) {
    memset(dx, 0, n * sizeof *dx);
    for (long i = 0; i < m; i++) {
        double s = 0;
        for (long p = 0; p < w; p++) dv[i * w + p] = 0;
        for (long p = 0; p < count[i]; p++) {
            int64_t j = col[i * w + p];
            s += v[i * w + p] * x[j];
            dv[i * w + p] = d[i] * x[j];
            dx[j] += d[i] * v[i * w + p];
        }
        y[i] = s;
    }
}
void messages_gradient(long n, long m, long f, const int64_t *from, const int64_t *to, const double *h, const double *g,
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
